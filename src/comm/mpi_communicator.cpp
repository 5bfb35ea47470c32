#include "comm/mpi_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/half.hpp"
#include "base/text.hpp"
#include "comm/check.hpp"
#include "comm/host_memory.hpp"
#include "mpi/chunks.hpp"
#include "mpi/environment.hpp"

namespace lockstep::comm {

namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;

/// `Element` is what MPI sums: float for halves, otherwise the scalar itself.
template <class Element>
void load(const void* from, Scalar scalar, Element* to, std::int64_t count) {
  if constexpr (std::is_same_v<Element, float>) {
    if (scalar == Scalar::float16) return half_to_float(static_cast<const std::uint16_t*>(from), to, count);
    if (scalar == Scalar::bfloat16)
      return bfloat16_to_float(static_cast<const std::uint16_t*>(from), to, count);
  }
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Element));
}

template <class Element>
void store(const Element* from, Scalar scalar, void* to, std::int64_t count) {
  if constexpr (std::is_same_v<Element, float>) {
    if (scalar == Scalar::float16) return float_to_half(from, static_cast<std::uint16_t*>(to), count);
    if (scalar == Scalar::bfloat16) return float_to_bfloat16(from, static_cast<std::uint16_t*>(to), count);
  }
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Element));
}

char* at(void* data, std::int64_t element, Scalar scalar) {
  return static_cast<char*>(data) + element * size_of(scalar);
}

/// By columns: `columns` of every row are gathered side by side, since MPI wants each rank's part in one
/// piece, summed, and this rank's sum is stored.
template <class Element>
void scatter_sums(const mpi::Communicator& ranks, const Buffer& all, void* piece) {
  const std::int64_t row = row_count(all, ranks.size());
  const std::int64_t columns = std::max<std::int64_t>(kChunkElements / ranks.size(), 1);
  std::vector<Element> packed;
  std::vector<Element> summed;
  mpi::for_each_chunk(row, columns, [&](std::int64_t begin, std::int64_t count) {
    packed.resize(static_cast<std::size_t>(count * ranks.size()));
    summed.resize(static_cast<std::size_t>(count));
    for (int rank = 0; rank < ranks.size(); ++rank) {
      load(at(all.data, rank * row + begin, all.scalar), all.scalar, packed.data() + rank * count, count);
    }
    ranks.sum_scatter(packed.data(), summed.data(), count);
    store(summed.data(), all.scalar, at(piece, begin, all.scalar), count);
  });
}

}  // namespace

MpiCommunicator::MpiCommunicator(const mpi::Communicator& world, const Options& options)
    : Communicator(world.rank(), world.size()), ranks_(world.duplicate()) {
  ranks_.set_patience({options.timeout_seconds, &stop_});
  worker_ = std::thread([this] { work(); });
}

MpiCommunicator::~MpiCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

void MpiCommunicator::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const Buffer buffer = queue_.front();
    queue_.pop_front();
    working_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      reduce(buffer);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    working_ = false;
    if (error) {
      // MPI may still write to the chunk of a sum that was given up. It is left behind: the job is about to
      // end.
      static_cast<void>(new auto(std::move(chunk_)));
      error_ = error;
      queue_.clear();
    }
    changed_.notify_all();
  }
}

void MpiCommunicator::reduce(const Buffer& buffer) {
  switch (buffer.scalar) {
    case Scalar::float16:
    case Scalar::bfloat16:
    case Scalar::float32:
      return reduce_as<float>(buffer);
    case Scalar::float64:
      return reduce_as<double>(buffer);
    case Scalar::int64:
      return reduce_as<std::int64_t>(buffer);
    case Scalar::uint8:
      return reduce_as<std::uint8_t>(buffer);
  }
}

/// Through a chunk of our own even where nothing is widened: when a sum is given up, the caller's memory may
/// go at once.
template <class Element>
void MpiCommunicator::reduce_as(const Buffer& buffer) {
  chunk_.resize(static_cast<std::size_t>(std::min(buffer.count, kChunkElements)) * sizeof(Element));
  auto* const chunk = reinterpret_cast<Element*>(chunk_.data());
  mpi::for_each_chunk(buffer.count, kChunkElements, [&](std::int64_t begin, std::int64_t count) {
    char* const values = at(buffer.data, begin, buffer.scalar);
    load(values, buffer.scalar, chunk, count);
    ranks_.sum(chunk, count);
    store(chunk, buffer.scalar, values, count);
  });
}

void MpiCommunicator::start_all_reduce(Buffer buffer) {
  check_buffer(buffer, "all_reduce");
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  if (buffer.count == 0) return;
  queue_.push_back(buffer);
  changed_.notify_all();
}

void MpiCommunicator::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !working_; });
  if (error_) std::rethrow_exception(error_);
}

void MpiCommunicator::broadcast(Buffer buffer, int root) {
  check_buffer(buffer, "broadcast");
  check_root(root, size());
  finish();
  ranks_.broadcast(buffer.data, buffer.bytes(), root);
}

void MpiCommunicator::all_gather(Buffer piece, void* all) {
  check_buffer(piece, "all_gather");
  finish();
  if (piece.count > 0) ranks_.all_gather(piece.data, piece.bytes(), all);
}

void MpiCommunicator::reduce_scatter(Buffer all, void* piece) {
  check_buffer(all, "reduce_scatter");
  row_count(all, size());
  finish();
  switch (all.scalar) {
    case Scalar::float16:
    case Scalar::bfloat16:
    case Scalar::float32:
      return scatter_sums<float>(ranks_, all, piece);
    case Scalar::float64:
      return scatter_sums<double>(ranks_, all, piece);
    case Scalar::int64:
      return scatter_sums<std::int64_t>(ranks_, all, piece);
    case Scalar::uint8:
      return scatter_sums<std::uint8_t>(ranks_, all, piece);
  }
}

void MpiCommunicator::barrier() {
  finish();
  ranks_.barrier();
}

std::shared_ptr<void> MpiCommunicator::allocate(std::int64_t bytes) {
  return allocate_host(bytes);
}

std::string MpiCommunicator::describe() const {
  return text("mpi (", mpi::library_version(), "), ", count_of(size(), "rank", "ranks"));
}

}  // namespace lockstep::comm
