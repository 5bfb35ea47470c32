#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace lockstep::data {

/// What a tokenizer is stored as: in the folder of the data that it made, and in the folders of the runs on
/// it.
inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerModelFile = "tokenizer.model";

/// Text to token ids and back. Two kinds: `bytes`, an id a byte and one more for the end of a text;
/// `sentencepiece`, a model of the SentencePiece library (Kudo and Richardson 2018). Copies share one model.
/// Any thread may call.
class Tokenizer {
 public:
  static Tokenizer bytes();

  /// `model`: the content of a SentencePiece model file, `source` what to call it in messages. Throws
  /// DataError where it is none, or has no piece that ends a text.
  static Tokenizer sentencepiece(std::string model, const std::string& source);

  /// Trains byte-pair encoding with byte fallback: every text can be encoded and comes back as it was. The
  /// same texts give the same model. `vocabulary` counts all ids. Learns from about 64 MiB of lines, evenly
  /// taken from `texts`. Throws UsageError where there is too little text for the vocabulary, or the
  /// vocabulary is too small.
  static Tokenizer train(std::span<const std::string> texts, std::int64_t vocabulary);

  /// Reads what save() wrote. Throws DataError: input_missing where there is no tokenizer, bad_data for a
  /// damaged one.
  static Tokenizer load(const std::string& folder);
  void save(const std::string& folder) const;

  /// `source` is for messages. Throws DataError with the offset where a text is not UTF-8 and has to be
  /// (sentencepiece).
  std::vector<std::int32_t> encode(std::string_view text, const std::string& source) const;

  /// The end of a text decodes to nothing. Throws UsageError for ids outside of the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens) const;

  const std::string& kind() const { return kind_; }          ///< "bytes" or "sentencepiece"
  std::int64_t vocabulary() const { return vocabulary_; }    ///< ids are below it
  std::int32_t end_of_text() const { return end_of_text_; }  ///< stands after each document
  std::string hash() const;  ///< sixteen digits: equal for tokenizers that do the same

 private:
  Tokenizer() = default;

  std::string kind_;
  std::int64_t vocabulary_ = 0;
  std::int32_t end_of_text_ = 0;
  std::string model_;  // of sentencepiece, as its file holds it
  std::shared_ptr<const sentencepiece::SentencePieceProcessor> processor_;
};

/// Offset of the first byte that is not part of well-formed UTF-8 (RFC 3629); -1 where there is none.
std::int64_t first_invalid_utf8(std::string_view text);

}  // namespace lockstep::data
