#include "data/pack_text.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "data/gzip.hpp"
#include "data/order.hpp"
#include "data/pack.hpp"
#include "data/pack_folder.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

void check_settings(const PackText& settings) {
  const auto refuse = [](const auto&... words) { throw UsageError(text(words...)); };
  const bool trains = settings.tokenizer == "sentencepiece";
  if (settings.sequence_length < 1)
    refuse("--sequence-length ", settings.sequence_length, " makes no rows; it must be at least 1");
  if (settings.shards < 1) refuse("data cannot be packed into ", settings.shards, " shards");
  if (settings.output.empty()) refuse("packing needs an output folder");
  if (!(settings.validation_fraction >= 0 && settings.validation_fraction < 1)) {
    refuse("--validation-fraction ", settings.validation_fraction, " is not in [0, 1)");
  }
  if (settings.validation_output.empty() != (settings.validation_fraction == 0)) {
    refuse("--validation-output ",
           settings.validation_output.empty() ? "(not given)" : settings.validation_output,
           " and --validation-fraction ", settings.validation_fraction, " go together; give both or neither");
  }
  if (!settings.validation_output.empty() &&
      folder_path(settings.output) == folder_path(settings.validation_output)) {
    refuse("training and validation shards cannot share the folder ", settings.output);
  }
  if (trains && settings.vocabulary < 1)
    refuse("--tokenizer sentencepiece needs --vocabulary N, such as 8192");
  if (!trains && settings.vocabulary != 0) {
    refuse("--vocabulary ", settings.vocabulary, " belongs to --tokenizer sentencepiece; ",
           settings.tokenizer, " brings its own");
  }
}

std::vector<std::string> text_files(const std::string& input) {
  if (!fs::exists(input)) throw DataError(input, "", -1, "no such file or folder", ExitCode::input_missing);
  if (!fs::is_directory(input)) return {input};
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(input)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path().string());
  }
  if (paths.empty()) throw DataError(input, "", -1, "holds no *.txt", ExitCode::input_missing);
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Documents {
  std::vector<std::string> paths;
  std::vector<std::string> texts;
};

Documents read_documents(const PackText& settings, PackTextResult& result) {
  Documents documents;
  for (const std::string& path : text_files(settings.input)) {
    std::string content = read_plain_or_gzip(path);
    if (content.empty()) {
      ++result.empty_files;
      continue;
    }
    result.text_bytes += static_cast<std::int64_t>(content.size());
    documents.paths.push_back(path);
    documents.texts.push_back(std::move(content));
  }
  if (documents.texts.empty()) throw DataError(settings.input, "", -1, "holds no text: it is empty");
  result.documents = static_cast<std::int64_t>(documents.texts.size());
  return documents;
}

void check_utf8(const Documents& documents) {
  for (std::size_t i = 0; i < documents.texts.size(); ++i) {
    const std::int64_t wrong = first_invalid_utf8(documents.texts[i]);
    if (wrong < 0) continue;
    throw DataError(
        documents.paths[i], "", -1,
        text("byte ", wrong, " is not UTF-8; convert the text (iconv -t UTF-8), or take --tokenizer bytes"));
  }
}

Tokenizer tokenizer_for(const PackText& settings, const Documents& documents) {
  if (settings.tokenizer == "bytes") return Tokenizer::bytes();
  if (settings.tokenizer == "sentencepiece") {
    check_utf8(documents);
    return Tokenizer::train(documents.texts, settings.vocabulary);
  }
  if (!fs::exists(settings.tokenizer)) {
    throw DataError(
        settings.tokenizer, "", -1,
        "no such tokenizer; --tokenizer takes bytes, sentencepiece, a model file of the SentencePiece "
        "library, or a folder that lockstep pack text wrote",
        ExitCode::input_missing);
  }
  if (fs::is_directory(settings.tokenizer)) return Tokenizer::load(settings.tokenizer);
  return Tokenizer::sentencepiece(read_text_file(settings.tokenizer), settings.tokenizer);
}

// Takes the texts: memory holds them or their tokens, not all of both.
std::vector<std::uint32_t> tokens_of(Documents documents, const Tokenizer& tokenizer) {
  std::vector<std::uint32_t> tokens;
  for (std::size_t i = 0; i < documents.texts.size(); ++i) {
    for (const std::int32_t token : tokenizer.encode(documents.texts[i], documents.paths[i])) {
      if (token < 0 || token >= tokenizer.vocabulary()) {
        throw DataError(documents.paths[i], "", -1,
                        text("the tokenizer made token ", token, ", outside of its own vocabulary [0, ",
                             tokenizer.vocabulary(), ")"));
      }
      tokens.push_back(static_cast<std::uint32_t>(token));
    }
    tokens.push_back(static_cast<std::uint32_t>(tokenizer.end_of_text()));
    documents.texts[i] = {};
  }
  return tokens;
}

// Rows `part` of all rows, as `shards` shards in a new folder beside `folder`, which is returned.
fs::path write_folder(const fs::path& folder, const char* prefix, const Share& part, std::int64_t shards,
                      const std::vector<std::uint32_t>& tokens, const Tokenizer& tokenizer,
                      std::int64_t length, PackTextResult& result) {
  const fs::path partial = begin_folder(folder);
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    const std::string name = shard_name(prefix, shard, shards);
    const Share mine = share(part.count(), shard, shards);
    const auto first = static_cast<std::size_t>((part.first + mine.first) * length);
    const auto count = static_cast<std::size_t>(mine.count() * length + 1);
    write_token_shard((partial / name).string(),
                      {mine.count(), length, std::span(tokens).subspan(first, count), tokenizer.vocabulary(),
                       tokenizer.hash()});
    sync_path((partial / name).string());
    result.files.push_back((folder / name).string());
  }
  tokenizer.save(partial.string());
  return partial;
}

// How many of the rows are for validation: the fraction, rounded, and at least one on either side.
std::int64_t validation_rows_of(const PackText& settings, std::int64_t rows) {
  if (settings.validation_fraction == 0) return 0;
  if (rows < 2) {
    throw DataError(settings.input, "", -1,
                    text("makes ", rows, " row of ", settings.sequence_length,
                         " tokens; training and validation need one each"));
  }
  const auto wanted = std::llround(settings.validation_fraction * static_cast<double>(rows));
  return std::clamp<std::int64_t>(wanted, 1, rows - 1);
}

PackTextResult pack(const PackText& settings) {
  const fs::path train_folder = folder_path(settings.output);
  const fs::path validation_folder = folder_path(settings.validation_output);
  const bool validates = !settings.validation_output.empty();
  check_folder(train_folder, settings.overwrite);
  if (validates) check_folder(validation_folder, settings.overwrite);

  PackTextResult result;
  Documents documents = read_documents(settings, result);
  const Tokenizer tokenizer = tokenizer_for(settings, documents);
  const auto tokens = tokens_of(std::move(documents), tokenizer);
  const std::int64_t length = settings.sequence_length;
  result.tokenizer_kind = tokenizer.kind();
  result.vocabulary = tokenizer.vocabulary();
  result.tokens = static_cast<std::int64_t>(tokens.size());
  const std::int64_t rows = (result.tokens - 1) / length;
  if (rows < 1) {
    throw DataError(settings.input, "", -1,
                    text("holds ", result.tokens, " tokens, too few for one row of --sequence-length ",
                         length, " and the token after it; give more text or a shorter length"));
  }
  result.tokens_left_out = result.tokens - rows * length - 1;
  result.validation_rows = validation_rows_of(settings, rows);
  result.train_rows = rows - result.validation_rows;
  if (settings.shards > result.train_rows) {
    throw UsageError(text(result.train_rows, " rows cannot be packed into ", settings.shards, " shards"));
  }
  const fs::path train = write_folder(train_folder, "train", {0, result.train_rows}, settings.shards, tokens,
                                      tokenizer, length, result);
  fs::path validation;
  if (validates) {
    validation = write_folder(validation_folder, "validation", {result.train_rows, rows}, 1, tokens,
                              tokenizer, length, result);
  }
  swap_in(train, train_folder);
  if (validates) swap_in(validation, validation_folder);
  return result;
}

}  // namespace

PackTextResult pack_text(const PackText& settings) {
  check_settings(settings);
  try {
    return pack(settings);
  } catch (const fs::filesystem_error& failure) {
    throw Error(ExitCode::cannot_create, failure.what());
  }
}

}  // namespace lockstep::data
