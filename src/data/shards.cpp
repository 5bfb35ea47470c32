#include "data/shards.hpp"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"

namespace lockstep::data {

namespace {

using Json = nlohmann::json;

Json to_json(const Storage& storage) {
  return {storage.offset, storage.block_rows, storage.chunks_per_block, storage.big_endian};
}

Storage storage_from(const Json& json) {
  return {json.at(0).get<std::int64_t>(), json.at(1).get<std::int64_t>(), json.at(2).get<std::int64_t>(),
          json.at(3).get<bool>()};
}

}  // namespace

Shape DataSet::stored_shape() const {
  return tokens_ ? Shape{input_shape_[0] + 1} : input_shape_;
}

std::int64_t DataSet::input_row_bytes() const {
  std::int64_t bytes = hdf5::size_bytes(input_scalar_);
  for (const std::int64_t extent : stored_shape()) bytes *= extent;
  return bytes;
}

std::int64_t DataSet::target_row_bytes() const {
  return tokens_ ? 0 : hdf5::size_bytes(target_scalar_);
}

std::int64_t DataSet::decoded_bytes() const {
  return rows_ * (input_row_bytes() + target_row_bytes());
}

RowBlocks DataSet::row_blocks() const {
  RowBlocks blocks;
  blocks.row_bytes = input_row_bytes() + target_row_bytes();
  for (const Shard& shard : shards_) {
    for (std::int64_t row = 0; row < shard.rows; row += shard.inputs.block_rows) {
      blocks.edges.push_back(shard.first_row + row);
    }
  }
  blocks.edges.push_back(rows_);
  return blocks;
}

std::uint64_t DataSet::fingerprint() const {
  // Checkpoints hold it, so the words of either kind must stay what they are.
  const std::string kind = tokens_ ? "tokens " + tokenizer_hash_ : std::string(hdf5::name(target_scalar_));
  std::string words = text(hdf5::name(input_scalar_), hdf5::to_text(input_shape_), kind, ' ', classes_);
  for (const Shard& shard : shards_) {
    words += text('\n', std::filesystem::path(shard.path).filename().string(), ' ', shard.file_bytes, ' ',
                  shard.rows, ' ', shard.inputs.block_rows);
  }
  return hash_text(words);
}

std::string DataSet::describe() const {
  Json shards = Json::array();
  for (const Shard& shard : shards_) {
    shards.push_back(
        {shard.path, shard.rows, shard.file_bytes, to_json(shard.inputs), to_json(shard.targets)});
  }
  return Json{{"tokens", tokens_},
              {"tokenizer", tokenizer_hash_},
              {"input_shape", input_shape_},
              {"input_scalar", hdf5::name(input_scalar_)},
              {"target_scalar", hdf5::name(target_scalar_)},
              {"classes", classes_},
              {"mean", mean_},
              {"std", std_deviation_},
              {"shards", shards}}
      .dump();
}

DataSet DataSet::from_description(const std::string& description) {
  try {
    const Json json = Json::parse(description);
    DataSet data;
    data.tokens_ = json.at("tokens").get<bool>();
    data.tokenizer_hash_ = json.at("tokenizer").get<std::string>();
    data.input_shape_ = json.at("input_shape").get<Shape>();
    data.input_scalar_ = hdf5::scalar_named(json.at("input_scalar").get<std::string>());
    data.target_scalar_ = hdf5::scalar_named(json.at("target_scalar").get<std::string>());
    data.classes_ = json.at("classes").get<std::int64_t>();
    data.mean_ = json.at("mean").get<std::vector<double>>();
    data.std_deviation_ = json.at("std").get<std::vector<double>>();
    for (const Json& entry : json.at("shards")) {
      Shard shard;
      shard.path = entry.at(0).get<std::string>();
      shard.first_row = data.rows_;
      shard.rows = entry.at(1).get<std::int64_t>();
      shard.file_bytes = entry.at(2).get<std::int64_t>();
      shard.inputs = storage_from(entry.at(3));
      shard.targets = storage_from(entry.at(4));
      data.rows_ += shard.rows;
      data.shards_.push_back(std::move(shard));
    }
    return data;
  } catch (const Json::exception& failure) {
    throw DataError("description of a data set", "", -1, failure.what());
  }
}

}  // namespace lockstep::data
