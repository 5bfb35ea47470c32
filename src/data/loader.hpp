#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/order.hpp"
#include "data/reader.hpp"

namespace lockstep::data {

/// Gives memory for one slot, at least 64-byte aligned; called in the loader's constructor only. Pinned
/// memory goes in here.
using Allocator = std::function<std::shared_ptr<void>(std::int64_t bytes)>;

/// Plain host memory, aligned to 64 bytes.
std::shared_ptr<void> host_memory(std::int64_t bytes);

struct LoaderSettings {
  std::int64_t rank = 0;
  std::int64_t world = 1;
  std::int64_t first_step = 0;     ///< counted from 0 over all epochs
  std::int64_t end_step = 0;       ///< one past the last step
  std::int64_t prefetch = 4;       ///< slots, at least 1
  std::int64_t accumulation = 1;   ///< micro-batches of a step
  std::int64_t augment_shift = 0;  ///< images [channels, height, width] move by up to this many pixels
  std::int64_t cache_bytes = kDefaultCacheBytes;
  Allocator allocate = host_memory;
};

/// One rank's part of one step.
struct Slot {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t global_count = 0;    ///< rows of the step over all ranks
  std::int64_t count = 0;           ///< rows of this rank; may be 0
  std::byte* inputs = nullptr;      ///< [count, ...stored_shape] of the data set's type, room for capacity()
  std::int64_t* targets = nullptr;  ///< [count] labels; null for tokens
  std::vector<Share> micro;         ///< rows of each micro-batch, within [0, count)
  std::vector<std::int64_t> rows;   ///< [count] row numbers in the data set
  double wait_seconds = 0;          ///< how long next() blocked for it
};

/// Fills slots ahead of the trainer in a thread of its own, in the order of steps. All memory is allocated
/// once. Local: no rank waits for another here.
class Loader {
 public:
  /// Throws UsageError (a setting is out of range, shifting something that is no image) and DataError (see
  /// Rows).
  Loader(const DataSet& data, Order order, LoaderSettings settings);
  /// Stops the thread; slots must no longer be in use.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next step's slot, valid until it is released. Blocks until it is full. Throws what the thread met
  /// while filling it, and UsageError after the last step or while all `prefetch` slots are held unreleased.
  const Slot& next();

  /// Gives a slot back. The thread calls `wait_until_free` before it refills it: wait there for the device's
  /// copies.
  void release(const Slot& slot, std::function<void()> wait_until_free = {});

  /// Rows that a slot has room for: the largest share of any rank.
  std::int64_t capacity() const { return capacity_; }

 private:
  void run();
  void fill(Slot& slot, std::int64_t step);

  DataSet data_;
  Order order_;
  LoaderSettings settings_;
  std::int64_t capacity_;
  Rows rows_;
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<Slot> slots_;
  std::vector<std::byte> scratch_;  // one row, while it is shifted

  std::mutex mutex_;
  std::condition_variable changed_;
  struct Free {
    Slot* slot;
    std::function<void()> wait_until_free;
  };
  std::deque<Free> free_;
  std::deque<Slot*> full_;
  std::exception_ptr failure_;
  std::int64_t next_step_;
  std::size_t held_ = 0;  // slots between next() and release()
  bool stop_ = false;
  std::thread thread_;  // last: it uses everything above
};

/// How far the image of `row` is moved in `epoch`: dx and dy in [-limit, limit], keyed by nothing else.
struct Shift {
  std::int64_t dx;
  std::int64_t dy;
};
Shift image_shift(std::uint64_t seed, std::int64_t epoch, std::int64_t row, std::int64_t limit);

/// out[c, y + dy, x + dx] = in[c, y, x] for images [channels, height, width]; what no pixel reaches becomes
/// 0.
void shift_image(const std::byte* in, std::byte* out, const Shape& shape, std::int64_t element_bytes,
                 Shift shift);

}  // namespace lockstep::data
