#pragma once

#include <cstdint>
#include <vector>

#include "config/settings.hpp"
#include "data/permutation.hpp"
#include "data/shards.hpp"

namespace lockstep::data {

/// Positions [first, last) of a global batch; may be empty.
struct Share {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t count() const { return last - first; }
  friend bool operator==(const Share&, const Share&) = default;
};

/// What `rank` of `world` takes of a batch: [rank * n / world, (rank + 1) * n / world).
Share share(std::int64_t batch_size, std::int64_t rank, std::int64_t world);

/// What micro-batch `micro` of `accumulation` takes of a rank's share, cut the same way.
Share micro_share(const Share& rank_share, std::int64_t micro, std::int64_t accumulation);

/// Which rows make up which step: a pure function of (seed, data set, global batch, step), whatever the world
/// size. Every epoch holds each row once, each epoch in another order; only its last step may be short, and
/// nothing is padded or wrapped. Memory is of the number of row blocks. One thread at a time: row() keeps the
/// epoch it was asked for last.
///
/// Modes. none: the order of the files. full: one keyed permutation of all rows. blocks: row blocks are
/// permuted, the resulting sequence of rows is cut into lanes, rows are permuted within windows of a few
/// blocks of a lane, and a global batch takes the same number of rows from each lane; so a rank that owns
/// whole lanes reads each block once an epoch. automatic: full up to 1 GiB of decoded data, else blocks.
class Order {
 public:
  /// Throws UsageError when `global_batch` is below 1 and DataError when there are no rows.
  Order(RowBlocks blocks, std::uint64_t seed, std::int64_t global_batch,
        config::ShuffleMode mode = config::ShuffleMode::automatic);

  std::int64_t rows() const { return blocks_.rows(); }
  std::int64_t global_batch() const { return global_batch_; }
  std::uint64_t seed() const { return seed_; }
  config::ShuffleMode mode() const { return mode_; }  ///< never automatic
  std::int64_t lanes() const { return lanes_; }       ///< 1 unless the mode is blocks

  std::int64_t steps_per_epoch() const;
  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch(); }

  /// Rows of step `step`, counted from 0 over all epochs: the global batch, or what is left of the epoch.
  std::int64_t batch_size(std::int64_t step) const;

  /// The row of the data set at `position` in [0, batch_size(step)) of step `step`.
  std::int64_t row(std::int64_t step, std::int64_t position);

 private:
  struct Place {
    std::int64_t lane;
    std::int64_t index;  ///< within the lane
  };
  Place place(std::int64_t step_of_epoch, std::int64_t position) const;
  void enter_epoch(std::int64_t epoch);
  std::int64_t block_row(const Place& place) const;

  RowBlocks blocks_;
  std::uint64_t seed_;
  std::int64_t global_batch_;
  config::ShuffleMode mode_;
  std::int64_t lanes_ = 1;

  std::int64_t epoch_ = -1;  // what the members below belong to
  Permutation epoch_rows_{1, 0};
  std::vector<std::int64_t> sequence_;  // blocks in this epoch's order
  std::vector<std::int64_t> starts_;    // where each begins in the sequence of rows, then the number of rows
};

}  // namespace lockstep::data
