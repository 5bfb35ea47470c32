#include <algorithm>
#include <unordered_map>

#include <sentencepiece_trainer.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kTrainingBytes = std::int64_t{64} << 20;
constexpr std::size_t kLongestLine = 1 << 14;  // the library learns nothing from longer ones

/// Every n-th line of some texts, so that about kTrainingBytes are seen, whatever their size.
class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::span<const std::string> texts) : texts_(texts) {
    std::int64_t bytes = 0;
    for (const std::string& text : texts) bytes += static_cast<std::int64_t>(text.size());
    stride_ = (bytes + kTrainingBytes - 1) / kTrainingBytes;
    Next();
  }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    do {
      done_ = !read_line();
    } while (!done_ && (line_.empty() || line_number_++ % stride_ != 0));
  }

 private:
  bool read_line() {
    while (text_ < texts_.size() && at_ >= texts_[text_].size()) {
      ++text_;
      at_ = 0;
    }
    if (text_ == texts_.size()) return false;
    const std::string& text = texts_[text_];
    const std::size_t end = std::min(text.find('\n', at_), text.size());
    line_ = text.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }

  std::span<const std::string> texts_;
  std::int64_t stride_ = 1;
  std::size_t text_ = 0;
  std::size_t at_ = 0;
  std::int64_t line_number_ = 0;
  std::string line_;
  bool done_ = false;
};

// The library's words without the place in its source that they begin with: "file(line) [condition] words".
std::string words_of(const sentencepiece::util::Status& status) {
  const std::string words = status.error_message();
  const std::size_t end = words.find("] ");
  return end == std::string::npos ? words : words.substr(end + 2);
}

// Nothing is normalised, no space is added and none removed, and what has no piece becomes bytes: a text
// comes back as it was. One thread, so that the same texts give the same model.
std::unordered_map<std::string, std::string> training_settings(std::int64_t vocabulary) {
  return {{"model_type", "bpe"},
          {"vocab_size", std::to_string(vocabulary)},
          {"byte_fallback", "true"},
          {"character_coverage", "0.9995"},
          {"normalization_rule_name", "identity"},
          {"add_dummy_prefix", "false"},
          {"remove_extra_whitespaces", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"split_digits", "true"},
          {"max_sentence_length", std::to_string(kLongestLine)},
          {"unk_id", "0"},
          {"eos_id", "1"},
          {"bos_id", "-1"},
          {"pad_id", "-1"},
          {"num_threads", "1"},
          {"minloglevel", "3"}};
}

}  // namespace

Tokenizer Tokenizer::train(std::span<const std::string> texts, std::int64_t vocabulary) {
  Lines lines(texts);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(training_settings(vocabulary), &lines, &model);
  if (!status.ok()) {
    throw UsageError(text("--tokenizer sentencepiece cannot make a vocabulary of ", vocabulary,
                          " from this text: ", words_of(status)),
                     ExitCode::bad_data);
  }
  return sentencepiece(std::move(model), "the trained tokenizer");
}

}  // namespace lockstep::data
