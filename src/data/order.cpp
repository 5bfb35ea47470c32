#include "data/order.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kFullShuffleBytes = std::int64_t{1} << 30;  // below it the page cache holds all rows
constexpr std::int64_t kMaximumLanes = 64;
constexpr std::int64_t kWindowBlocks = 4;  // 1 would give class-sorted shards batches of few classes

// Keys of independent choices.
enum class Purpose : std::uint64_t { rows = 1, blocks = 2, window = 3 };

// A divisor of the global batch, and few enough that a lane holds at least one window of whole blocks.
std::int64_t choose_lanes(std::int64_t global_batch, std::int64_t blocks) {
  const std::int64_t limit = std::clamp<std::int64_t>(blocks / kWindowBlocks, 1, kMaximumLanes);
  for (std::int64_t lanes = std::min(limit, global_batch); lanes > 1; --lanes) {
    if (global_batch % lanes == 0) return lanes;
  }
  return 1;
}

// The index of the block that holds `position` in ascending `starts`.
std::int64_t block_at(const std::vector<std::int64_t>& starts, std::int64_t position) {
  return std::upper_bound(starts.begin(), starts.end(), position) - starts.begin() - 1;
}

}  // namespace

Share share(std::int64_t batch_size, std::int64_t rank, std::int64_t world) {
  return {rank * batch_size / world, (rank + 1) * batch_size / world};
}

Share micro_share(const Share& rank_share, std::int64_t micro, std::int64_t accumulation) {
  const Share part = share(rank_share.count(), micro, accumulation);
  return {rank_share.first + part.first, rank_share.first + part.last};
}

Order::Order(RowBlocks blocks, std::uint64_t seed, std::int64_t global_batch, config::ShuffleMode mode)
    : blocks_(std::move(blocks)), seed_(seed), global_batch_(global_batch), mode_(mode) {
  if (global_batch_ < 1)
    throw UsageError(text("the global batch is ", global_batch_, "; it must be at least 1"));
  if (blocks_.edges.size() < 2) throw DataError("data set", "", -1, "holds no rows");
  if (mode_ == config::ShuffleMode::automatic) {
    const bool small = rows() <= kFullShuffleBytes / std::max<std::int64_t>(blocks_.row_bytes, 1);
    mode_ = small ? config::ShuffleMode::full : config::ShuffleMode::blocks;
  }
  if (mode_ == config::ShuffleMode::blocks) lanes_ = choose_lanes(global_batch_, blocks_.count());
}

std::int64_t Order::steps_per_epoch() const {
  return (rows() + global_batch_ - 1) / global_batch_;
}

std::int64_t Order::batch_size(std::int64_t step) const {
  return std::min(global_batch_, rows() - step % steps_per_epoch() * global_batch_);
}

std::int64_t Order::row(std::int64_t step, std::int64_t position) {
  if (step < 0 || position < 0 || position >= batch_size(step)) {
    throw UsageError(text("position ", position, " of step ", step, " is outside of its batch of ",
                          step < 0 ? 0 : batch_size(step)));
  }
  const std::int64_t step_of_epoch = step % steps_per_epoch();
  const std::int64_t index = step_of_epoch * global_batch_ + position;
  if (mode_ == config::ShuffleMode::none) return index;
  enter_epoch(epoch_of(step));
  if (mode_ == config::ShuffleMode::full) return epoch_rows_(index);
  return block_row(place(step_of_epoch, position));
}

void Order::enter_epoch(std::int64_t epoch) {
  if (epoch == epoch_) return;
  if (mode_ == config::ShuffleMode::full) {
    epoch_rows_ = Permutation(rows(), mix_all(seed_, Purpose::rows, epoch));
  } else {
    const Permutation order(blocks_.count(), mix_all(seed_, Purpose::blocks, epoch));
    sequence_.resize(static_cast<std::size_t>(blocks_.count()));
    starts_.assign(1, 0);
    for (std::size_t i = 0; i < sequence_.size(); ++i) {
      const auto block = static_cast<std::size_t>(order(static_cast<std::int64_t>(i)));
      sequence_[i] = static_cast<std::int64_t>(block);
      starts_.push_back(starts_.back() + blocks_.edges[block + 1] - blocks_.edges[block]);
    }
  }
  epoch_ = epoch;
}

// Full steps take `each` rows of every lane. What the lanes then have left, less than a global batch in all
// since their sizes differ by one at most, makes up the last step, one lane after the other.
Order::Place Order::place(std::int64_t step_of_epoch, std::int64_t position) const {
  const std::int64_t each = global_batch_ / lanes_;
  const std::int64_t taken = step_of_epoch * each;
  if (step_of_epoch + 1 < steps_per_epoch() || rows() % global_batch_ == 0) {
    return {position / each, taken + position % each};
  }
  for (std::int64_t lane = 0;; ++lane) {
    const std::int64_t left = share(rows(), lane, lanes_).count() - taken;
    if (position < left) return {lane, taken + position};
    position -= left;
  }
}

// Windows are counted from the block in which the lane begins; a lane's first and last window may be cut by
// its ends.
std::int64_t Order::block_row(const Place& place) const {
  const Share lane = share(rows(), place.lane, lanes_);
  const std::int64_t position = lane.first + place.index;
  const std::int64_t lane_block = block_at(starts_, lane.first);
  const std::int64_t window = (block_at(starts_, position) - lane_block) / kWindowBlocks;
  const std::int64_t first_block = lane_block + window * kWindowBlocks;
  const std::int64_t end_block = std::min(first_block + kWindowBlocks, blocks_.count());
  const std::int64_t first = std::max(lane.first, starts_[static_cast<std::size_t>(first_block)]);
  const std::int64_t last = std::min(lane.last, starts_[static_cast<std::size_t>(end_block)]);
  const Permutation within(last - first, mix_all(seed_, Purpose::window, epoch_, place.lane, window));
  const std::int64_t shuffled = first + within(position - first);
  const auto block = static_cast<std::size_t>(block_at(starts_, shuffled));
  return blocks_.edges[static_cast<std::size_t>(sequence_[block])] + shuffled - starts_[block];
}

}  // namespace lockstep::data
