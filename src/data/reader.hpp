#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "data/shards.hpp"

namespace lockstep::data {

/// How rows will be asked for: `blocks` when all rows of a block are asked for near each other (file order, shuffled
/// blocks), `rows` when they are scattered over the whole data set.
enum class Access { blocks, rows };

/// What a reader has done since it was made.
struct ReadCounts {
  std::int64_t blocks = 0;        ///< row blocks read
  std::int64_t chunks = 0;        ///< chunks in them: each was inflated once per reading
  std::int64_t single_rows = 0;   ///< rows read without their block
  std::int64_t bytes = 0;         ///< decoded
  std::int64_t opens = 0;
};

constexpr std::int64_t kDefaultCacheBytes = std::int64_t{256} << 20;

/// Reads rows of a data set in any order, by one thread at a time. Blocks are kept, most recently used, up to
/// `cache_bytes`; a block that is larger than that is refused by the constructor. Contiguous data is read with pread past
/// the HDF5 library; other layouts through it, in whole row blocks. At most 64 files are open.
class Rows {
 public:
  /// Throws DataError when a row block does not fit into the cache. Contiguous rows that are asked for singly need none.
  Rows(DataSet data, Access access, std::int64_t cache_bytes = kDefaultCacheBytes);
  ~Rows();
  Rows(Rows&&) noexcept;
  Rows& operator=(Rows&&) noexcept;

  const DataSet& data() const { return data_; }
  const ReadCounts& counts() const { return counts_; }
  std::int64_t cached_bytes() const { return cached_bytes_; }

  /// Copies the rows (of the data set) into `inputs` [rows.size(), ...input_shape], in the data set's type and this
  /// machine's byte order, and their labels into `targets` [rows.size()]. Throws DataError with the file and the row when
  /// data is missing, damaged or changed since the data set was opened, UsageError when a row is out of range.
  void read(std::span<const std::int64_t> rows, void* inputs, std::int64_t* targets);

 private:
  struct OpenShard;
  struct Column;
  struct Block {
    std::int64_t key;
    std::vector<std::byte> bytes;
  };

  const Shard& shard_of(std::int64_t row, std::size_t& index) const;
  OpenShard& open(std::size_t shard);
  const std::byte* cached_row(const Column& column, std::size_t shard, std::int64_t row);
  void load(const Column& column, std::size_t shard, std::int64_t first, std::int64_t rows, std::byte* out);
  void copy_row(const Column& column, std::size_t shard, std::int64_t row, std::byte* out);

  DataSet data_;
  std::int64_t cache_bytes_;
  bool single_rows_;
  std::int64_t cached_bytes_ = 0;
  ReadCounts counts_;
  std::list<Block> recent_;      // most recent first
  std::unordered_map<std::int64_t, std::list<Block>::iterator> blocks_;
  std::list<std::unique_ptr<OpenShard>> open_;
};

}  // namespace lockstep::data
