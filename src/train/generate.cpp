#include "train/generate.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <span>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "config/validate.hpp"
#include "mpi/job.hpp"
#include "precision/autocast.hpp"
#include "train/learner.hpp"
#include "train/place.hpp"
#include "train/stored_run.hpp"

namespace lockstep::train {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // what a tokenizer makes of part of a character

/// How much of `text` is whole: a character whose last bytes are yet to come is left out.
std::size_t whole_part(const std::string& text) {
  std::size_t end = text.size();
  while (std::string_view(text).substr(0, end).ends_with(kReplacement)) end -= kReplacement.size();
  if (end < text.size()) return end;
  const std::size_t tail = text.size() - std::min<std::size_t>(text.size(), 3);
  for (std::size_t begin = tail; begin < text.size(); ++begin) {
    const auto byte = static_cast<unsigned char>(text[begin]);
    const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (length > 1 && begin + length > text.size()) return begin;
  }
  return text.size();
}

/// Text of a growing row of tokens, as far as it will not change any more.
class Printer {
 public:
  /// What `tokens` stand for so far is not printed.
  Printer(const data::Tokenizer& tokenizer, std::span<const std::int32_t> tokens,
          const std::function<void(const std::string&)>& print)
      : tokenizer_(tokenizer), print_(print), shown_(tokenizer.decode(tokens).size()) {}

  void show(std::span<const std::int32_t> tokens, bool is_last) {
    const std::string text = tokenizer_.decode(tokens);
    const std::size_t end = is_last ? text.size() : whole_part(text);
    if (end <= shown_) return;
    print_(text.substr(shown_, end - shown_));
    shown_ = end;
  }

 private:
  const data::Tokenizer& tokenizer_;
  const std::function<void(const std::string&)>& print_;
  std::size_t shown_;  // bytes
};

/// A model that reads a growing row of tokens, each once while the row fits its context. A longer row is read
/// from a place near its end, so that half of the context is free again.
class Reader {
 public:
  explicit Reader(const Writer& writer) : writer_(writer) {}

  /// float [vocabulary] on the host, for the token after `tokens`, which begin with those of the last call.
  at::Tensor next_logits(std::span<const std::int32_t> tokens) {
    const auto context = static_cast<std::size_t>(writer_.context);
    if (tokens.size() - start_ > context) {
      start_ = tokens.size() - (context + 1) / 2;
      past_ = {};
    }
    const auto unread = tokens.subspan(start_ + static_cast<std::size_t>(past_.length));
    const std::vector<std::int64_t> wide(unread.begin(), unread.end());
    const at::Tensor row =
        at::tensor(at::ArrayRef<std::int64_t>(wide), at::kLong).unsqueeze(0).to(writer_.device);
    const precision::AutocastScope autocast(writer_.precision, writer_.device.is_cuda());
    // A vocabulary that the model has padded has logits that stand for nothing.
    return writer_.model.next_logits(row, &past_)
        .narrow(0, 0, writer_.tokenizer.vocabulary())
        .to(at::kCPU, at::kFloat)
        .contiguous();
  }

 private:
  const Writer& writer_;
  models::Past past_;
  std::size_t start_ = 0;  // the first token that the model remembers
};

std::string prompt_of(const config::GenerateSettings& settings) {
  return settings.prompt_file.empty() ? settings.prompt : read_text_file(settings.prompt_file);
}

data::Tokenizer tokenizer_of(const std::string& run_folder) {
  if (!std::filesystem::exists(run_folder + "/" + data::kTokenizerFile)) {
    throw DataError(run_folder, "", -1,
                    text("holds no ", data::kTokenizerFile,
                         ": its data had none beside the shards, and without it tokens are no text; put the "
                         "tokenizer's files there"),
                    ExitCode::input_missing);
  }
  return data::Tokenizer::load(run_folder);
}

/// In one process.
void generate(const config::GenerateSettings& settings, const mpi::Communicator& world) {
  config::validate(settings);
  const std::string prompt = prompt_of(settings);
  const Place place = choose_place(settings.device, world);
  const StoredRun run = find_stored_run(settings.run_folder, settings.checkpoint, world);
  const models::ModelRequest request = stored_request(run);
  if (!request.tokens) {
    throw UsageError(text("--run ", settings.run_folder, " trained --model ", run.settings.model.name,
                          " on labelled rows, so it cannot generate text; give a run on text"));
  }
  const data::Tokenizer tokenizer = tokenizer_of(settings.run_folder);
  config::TrainSettings plain = run.settings;
  plain.ops =
      config::KernelChoice::reference;  // every length is new here, and plans for it would take longer
  Learner learner(plain, request, std::max<std::int64_t>(1, plain.run.steps), place, world);
  learner.load(run.checkpoint, world);
  learner.model().eval();
  const Writer writer{learner.model(), tokenizer, request.input_shape.at(0), run.settings.precision,
                      place.device};
  std::cout << prompt << std::flush;
  write_text(writer, prompt, settings.tokens, Sampler({settings.temperature, settings.top_k, settings.seed}),
             [](const std::string& piece) { std::cout << piece << std::flush; });
  std::cout << std::endl;
}

}  // namespace

std::vector<std::int32_t> write_text(const Writer& writer, const std::string& prompt, std::int64_t count,
                                     Sampler sampler, const std::function<void(const std::string&)>& print) {
  torch::NoGradGuard no_grad;
  // A document begins after the end of another.
  std::vector<std::int32_t> tokens{writer.tokenizer.end_of_text()};
  const auto asked = writer.tokenizer.encode(prompt, "--prompt");
  tokens.insert(tokens.end(), asked.begin(), asked.end());
  if (static_cast<std::int64_t>(tokens.size()) > writer.context) {
    log::warn(text("--prompt has ", asked.size(), " tokens; the model remembers ", writer.context,
                   " and reads its last ", (writer.context + 1) / 2));
  }
  Reader reader(writer);
  Printer printer(writer.tokenizer, tokens, print);
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor logits = reader.next_logits(tokens);
    const auto next = sampler({logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())});
    if (next == writer.tokenizer.end_of_text()) break;
    tokens.push_back(static_cast<std::int32_t>(next));
    printer.show(tokens, false);
  }
  printer.show(tokens, true);
  return {tokens.begin() + static_cast<std::ptrdiff_t>(1 + asked.size()), tokens.end()};
}

int run_generation(const config::GenerateSettings& settings, const mpi::Communicator& world) {
  if (world.size() > 1) {
    throw UsageError(text("lockstep generate runs as one process, but ", world.size(),
                          " were started; start it without mpirun"));
  }
  mpi::on_root(world, [&] { generate(settings, world); });  // what one process meets, all ranks know
  return 0;
}

}  // namespace lockstep::train
