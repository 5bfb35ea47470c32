#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/shards.hpp"

namespace lockstep::data {

/// How rows will be asked for: `blocks` when all rows of a block are asked for near each other (file order,
/// shuffled blocks), `rows` when they are scattered over the whole data set.
enum class Access { blocks, rows };

/// What a reader has done since it was made.
struct ReadCounts {
  std::int64_t blocks = 0;       ///< row blocks read
  std::int64_t chunks = 0;       ///< chunks in them: each was inflated once per reading
  std::int64_t single_rows = 0;  ///< rows read without their block
  std::int64_t bytes = 0;        ///< decoded
  std::int64_t opens = 0;
};

constexpr std::int64_t kDefaultCacheBytes = std::int64_t{256} << 20;

/// Reads rows of a data set in any order, by one thread at a time. Row blocks are kept, most recently used,
/// up to `cache_bytes`. Contiguous data is read with pread past the HDF5 library, row by row where keeping
/// blocks would not pay; other layouts through the library, in whole row blocks, so that each chunk is
/// inflated once while its block is kept. At most 64 files are open.
class Rows {
 public:
  /// Throws DataError when a row block of chunked data does not fit into the cache: each row would inflate it
  /// anew.
  Rows(DataSet data, Access access, std::int64_t cache_bytes = kDefaultCacheBytes);
  ~Rows();
  Rows(Rows&&) noexcept;
  Rows& operator=(Rows&&) noexcept;

  const DataSet& data() const { return data_; }
  const ReadCounts& counts() const { return counts_; }
  std::int64_t cached_bytes() const { return cached_bytes_; }

  /// Copies the rows (of the data set) into `inputs` [rows.size(), ...stored_shape], in the data set's type
  /// and this machine's byte order, and their labels into `targets` [rows.size()], which tokens do not use.
  /// Throws DataError with the file and the row when data is missing, damaged or changed since the data set
  /// was opened, or a token is outside of the vocabulary; UsageError when a row is out of range.
  void read(std::span<const std::int64_t> rows, void* inputs, std::int64_t* targets);

 private:
  struct OpenShard;
  struct Column {      // inputs, targets or tokens
    std::int64_t tag;  // of cache keys
    std::string name;
    std::int64_t element_bytes;
    std::int64_t row_bytes;
    Storage Shard::*storage;
    std::optional<hdf5::Dataset> OpenShard::*dataset;
  };
  struct Block {
    std::int64_t key;
    std::vector<std::byte> bytes;
  };

  std::size_t shard_of(std::int64_t row) const;
  void check_tokens(const Shard& shard, std::int64_t row, const std::byte* tokens);
  OpenShard& open(std::size_t shard);
  bool singly(const Column& column, const Shard& shard) const;
  void copy(const Column& column, std::size_t shard, std::int64_t row, std::byte* out);
  const std::byte* cached(const Column& column, std::size_t shard, std::int64_t block);
  void load(const Column& column, std::size_t shard, std::int64_t first, std::int64_t rows, std::byte* out);
  void pread_rows(const Column& column, OpenShard& file, std::int64_t first, std::int64_t rows,
                  std::byte* out);

  DataSet data_;
  std::int64_t cache_bytes_;
  bool scattered_;
  std::vector<Column> columns_;  // inputs and targets, or tokens alone
  std::int64_t cached_bytes_ = 0;
  ReadCounts counts_;
  std::list<Block> recent_;  // most recent first
  std::unordered_map<std::int64_t, std::list<Block>::iterator> blocks_;
  std::list<std::unique_ptr<OpenShard>> open_;  // most recent first
  std::vector<std::int64_t> wide_;              // one row of tokens, while it is checked
};

}  // namespace lockstep::data
