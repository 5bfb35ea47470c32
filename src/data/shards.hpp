#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hdf5/dataset.hpp"

namespace lockstep::data {

using hdf5::Scalar;
using hdf5::Shape;

/// How one dataset (inputs, targets or tokens) of one shard is stored.
struct Storage {
  std::int64_t offset = -1;  ///< bytes from the start of the file of contiguous data; -1: read through HDF5
  std::int64_t block_rows = 1;  ///< rows that are read together: those of one chunk row, or about 1 MiB
  std::int64_t chunks_per_block = 1;
  bool big_endian = false;
};

/// One file of a data set.
struct Shard {
  std::string path;
  std::int64_t first_row = 0;  ///< of the data set
  std::int64_t rows = 0;
  std::int64_t file_bytes = 0;
  Storage inputs;   ///< of token shards: of the tokens
  Storage targets;  ///< unused in token shards
};

/// First row of every row block of a data set, ascending, then the number of rows: what the order of samples
/// is made of.
struct RowBlocks {
  std::vector<std::int64_t> edges;
  std::int64_t row_bytes = 0;  ///< of one decoded row, all that is stored of it

  std::int64_t rows() const { return edges.back(); }
  std::int64_t count() const { return static_cast<std::int64_t>(edges.size()) - 1; }
};

/// A checked data set: packed shards (docs/data-layouts.md) in the order of their names. Holds metadata only.
///
/// Two kinds. Rows of labelled data have inputs of any shape and one label. Rows of tokens are T + 1
/// consecutive ids of a text: the first T are the inputs, the last T the targets.
class DataSet {
 public:
  /// Opens a folder (every *.h5 and *.hdf5 in it) or one file and checks everything a step could stumble
  /// over, labels included, tokens not: Rows checks those when it reads them. Local, and it reads all labels:
  /// call it on one rank and hand describe() to the others. Throws DataError with the path, the dataset, the
  /// row, both values and what to do: input_missing for a missing or empty folder, else bad_data.
  static DataSet open(const std::string& path);

  /// One line of JSON that from_description() turns back into an equal data set without touching any file.
  std::string describe() const;
  static DataSet from_description(const std::string& description);

  std::int64_t rows() const { return rows_; }
  bool tokens() const { return tokens_; }  ///< rows are tokens
  const Shape& input_shape() const {
    return input_shape_;
  }                            ///< of one row: [channels, height, width], [features]; of tokens [T]
  Shape stored_shape() const;  ///< of one row as readers give it: that of the inputs; of tokens [T + 1]
  Scalar input_scalar() const { return input_scalar_; }
  Scalar target_scalar() const {
    return target_scalar_;
  }                                      ///< in the file; readers give int64; unused by tokens
  std::int64_t input_row_bytes() const;  ///< of stored_shape()
  std::int64_t targets_per_row() const { return tokens_ ? input_shape_[0] : 1; }  ///< that each have a loss
  std::int64_t classes() const { return classes_; }                      ///< of tokens the vocabulary
  const std::string& tokenizer_hash() const { return tokenizer_hash_; }  ///< empty: not known
  const std::vector<double>& mean() const {
    return mean_;
  }  ///< per channel (uint8: of values / 255); empty: none
  const std::vector<double>& std_deviation() const { return std_deviation_; }
  const std::vector<Shard>& shards() const { return shards_; }
  std::int64_t decoded_bytes() const;  ///< of all rows, all that is stored of them
  RowBlocks row_blocks() const;        ///< by the blocks of the inputs

  /// Hash of names, sizes, row counts, types, shapes, block sizes and the tokenizer, not of folders: a moved
  /// data set keeps it.
  std::uint64_t fingerprint() const;

 private:
  std::int64_t target_row_bytes() const;

  std::vector<Shard> shards_;
  std::int64_t rows_ = 0;
  bool tokens_ = false;
  Shape input_shape_;
  Scalar input_scalar_ = Scalar::uint8;
  Scalar target_scalar_ = Scalar::uint8;
  std::int64_t classes_ = 0;
  std::string tokenizer_hash_;
  std::vector<double> mean_;
  std::vector<double> std_deviation_;
};

}  // namespace lockstep::data
