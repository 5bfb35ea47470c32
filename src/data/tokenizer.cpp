#include "data/tokenizer.hpp"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>
#include <sentencepiece_processor.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"

namespace lockstep::data {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int32_t kByteValues = 256;
constexpr std::size_t kPieceBytes =
    1 << 16;  // the library's memory grows with the text that it is given at once

// Ends of pieces of `text`: after a line, which no trained piece reaches across, so that cutting changes
// nothing.
std::size_t piece_end(std::string_view text, std::size_t begin) {
  if (text.size() - begin <= kPieceBytes) return text.size();
  const std::size_t before = text.rfind('\n', begin + kPieceBytes - 1);
  if (before != std::string_view::npos && before >= begin) return before + 1;
  const std::size_t after = text.find('\n', begin + kPieceBytes);
  return after == std::string_view::npos ? text.size() : after + 1;
}

void check(const sentencepiece::util::Status& status, const char* call) {
  if (!status.ok())
    throw ApiError("SentencePiece", call, static_cast<long>(status.code()), status.error_message());
}

}  // namespace

Tokenizer Tokenizer::bytes() {
  Tokenizer tokenizer;
  tokenizer.kind_ = "bytes";
  tokenizer.vocabulary_ = kByteValues + 1;
  tokenizer.end_of_text_ = kByteValues;
  return tokenizer;
}

Tokenizer Tokenizer::sentencepiece(std::string model, const std::string& source) {
  const auto processor = std::make_shared<sentencepiece::SentencePieceProcessor>();
  if (model.empty() || !processor->LoadFromSerializedProto(model).ok()) {
    throw DataError(source, "", -1,
                    "is no SentencePiece model; --tokenizer takes bytes, sentencepiece, a model file of the "
                    "SentencePiece "
                    "library, or a folder that lockstep pack text wrote");
  }
  if (processor->eos_id() < 0) {
    throw DataError(source, "", -1, "has no piece that ends a text (eos_id); train one with --eos_id");
  }
  Tokenizer tokenizer;
  tokenizer.kind_ = "sentencepiece";
  tokenizer.vocabulary_ = processor->GetPieceSize();
  tokenizer.end_of_text_ = processor->eos_id();
  tokenizer.model_ = std::move(model);
  tokenizer.processor_ = processor;
  return tokenizer;
}

std::string Tokenizer::hash() const {
  return hex(hash_text(text(kind_, ' ', vocabulary_, ' ', end_of_text_, '\n', model_)));
}

Tokenizer Tokenizer::load(const std::string& folder) {
  const std::string path = folder + "/" + kTokenizerFile;
  const Json stored = Json::parse(read_text_file(path), nullptr, false);
  const auto damaged = [&](const std::string& problem) { return DataError(path, "", -1, problem); };
  if (!stored.is_object() || !stored.contains("kind") || !stored.contains("hash")) {
    throw damaged("is no description of a tokenizer");
  }
  Tokenizer tokenizer = bytes();
  if (stored["kind"] == "sentencepiece") {
    const std::string model = folder + "/" + kTokenizerModelFile;
    tokenizer = sentencepiece(read_text_file(model), model);
  } else if (stored["kind"] != "bytes") {
    throw damaged(
        text("describes a tokenizer of kind ", stored["kind"].dump(), "; known are bytes and sentencepiece"));
  }
  if (stored["hash"] != tokenizer.hash()) {
    throw damaged(text("has the hash ", stored["hash"].dump(), ", but the tokenizer has ", tokenizer.hash(),
                       "; it was changed after it was written"));
  }
  return tokenizer;
}

void Tokenizer::save(const std::string& folder) const {
  if (!model_.empty()) write_file_atomically(folder + "/" + kTokenizerModelFile, model_);
  const Json stored{
      {"kind", kind_}, {"vocabulary", vocabulary_}, {"end_of_text", end_of_text_}, {"hash", hash()}};
  write_file_atomically(folder + "/" + kTokenizerFile, stored.dump(2) + "\n");
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, const std::string& source) const {
  std::vector<std::int32_t> tokens;
  if (!processor_) {
    std::transform(text.begin(), text.end(), std::back_inserter(tokens),
                   [](char byte) { return static_cast<std::int32_t>(static_cast<unsigned char>(byte)); });
    return tokens;
  }
  if (const std::int64_t wrong = first_invalid_utf8(text); wrong >= 0) {
    throw DataError(source, "", -1,
                    lockstep::text("byte ", wrong,
                                   " is not UTF-8; convert the text (iconv -t UTF-8), or take "
                                   "--tokenizer bytes"));
  }
  std::vector<int> piece;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(text, begin);
    const std::string_view part = text.substr(begin, end - begin);
    check(processor_->Encode({part.data(), part.size()}, &piece), "Encode");
    tokens.insert(tokens.end(), piece.begin(), piece.end());
    begin = end;
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < vocabulary_) continue;
    throw UsageError(
        text("token ", token, " is outside of the tokenizer's vocabulary [0, ", vocabulary_, ")"));
  }
  std::string result;
  if (processor_) {
    check(processor_->Decode(std::vector<int>(tokens.begin(), tokens.end()), &result), "Decode");
    return result;
  }
  for (const std::int32_t token : tokens) {
    if (token != end_of_text_) result += static_cast<char>(token);
  }
  return result;
}

}  // namespace lockstep::data
