#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/shards.hpp"

namespace lockstep::data {

/// How a CSV file of images becomes shards. Each line holds the values of one image, whole numbers in 0..255
/// in the order of `shape`, and one label.
struct PackCsv {
  std::string input;               ///< plain or gzip-compressed, told apart by content
  std::string output;              ///< folder of the training shards
  std::string test_output;         ///< folder of the test shard; needed when test_count is above 0
  Shape shape;                     ///< of one row, [channels, height, width] or [features]
  std::int64_t label_column = -1;  ///< from 0; negative counts from the end
  std::int64_t classes = 0;        ///< labels are below it; 0: one more than the largest label
  std::int64_t shards = 1;
  std::int64_t test_count = 0;  ///< rows put aside for testing, every class in proportion
  std::uint64_t seed = 1;       ///< of the split and of the order of rows
  bool overwrite = false;       ///< replace shards that are there
};

struct PackResult {
  std::int64_t train_rows = 0;
  std::int64_t test_rows = 0;
  std::int64_t classes = 0;
  bool skipped_header = false;  ///< line 1 held no number where the label is
  std::vector<double> mean;     ///< per channel, of values / 255, over the training rows
  std::vector<double> std_deviation;
  std::vector<std::string> files;  ///< as written, training shards first
};

/// Writes `train-00000-of-00004.h5` ... and `test-00000-of-00001.h5`. The same input, settings and seed give
/// byte-identical files. Folders appear complete or not at all. Holds the whole input in memory. Throws
/// DataError with the line number (ragged lines, values that are no whole numbers in 0..255, labels out of
/// range; input_missing without an input) and UsageError (settings; cannot_create when a folder holds shards
/// already and overwrite is off, or holds other files).
PackResult pack_csv(const PackCsv& settings);

/// One shard as pack writes it; see docs/data-layouts.md.
struct ShardContent {
  Shape shape;  ///< of one row
  Scalar scalar = Scalar::uint8;
  std::int64_t rows = 0;
  const void* inputs = nullptr;           ///< [rows, ...shape]
  const std::int64_t* targets = nullptr;  ///< [rows]; stored as uint8 up to 256 classes, else int32
  std::int64_t classes = 0;
  std::vector<double> mean;
  std::vector<double> std_deviation;
};

/// Writes one new shard; throws DataError(cannot_create).
void write_shard(const std::string& path, const ShardContent& content);

/// One shard of token rows as pack writes it.
struct TokenShardContent {
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;  ///< T: row k is tokens [k * T, k * T + T], one shared with the next row
  std::span<const std::uint32_t> tokens;  ///< [rows * T + 1]
  std::int64_t vocabulary = 0;            ///< up to 65,536: stored as uint16, else uint32
  std::string tokenizer_hash;             ///< empty: none is stored
};

/// Writes one new shard; throws DataError(cannot_create).
void write_token_shard(const std::string& path, const TokenShardContent& content);

}  // namespace lockstep::data
