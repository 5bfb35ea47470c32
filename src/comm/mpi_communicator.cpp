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

bool is_narrow(Scalar scalar) {
  return scalar == Scalar::float16 || scalar == Scalar::bfloat16;
}

void widen(const void* from, Scalar scalar, float* to, std::int64_t count) {
  const auto* const bits = static_cast<const std::uint16_t*>(from);
  scalar == Scalar::float16 ? half_to_float(bits, to, count) : bfloat16_to_float(bits, to, count);
}

void narrow(const float* from, Scalar scalar, void* to, std::int64_t count) {
  auto* const bits = static_cast<std::uint16_t*>(to);
  scalar == Scalar::float16 ? float_to_half(from, bits, count) : float_to_bfloat16(from, bits, count);
}

char* at(void* data, std::int64_t element, Scalar scalar) {
  return static_cast<char*>(data) + element * size_of(scalar);
}

/// reduce_scatter by columns: `columns` of every row are gathered side by side, since MPI wants each rank's
/// part in one piece, summed, and this rank's sum is stored. `Element` is what MPI sums: float for halves.
template <class Element>
class ScatterByColumns {
 public:
  ScatterByColumns(const mpi::Communicator& ranks, Buffer all, void* piece)
      : ranks_(ranks), all_(all), piece_(piece), row_(row_count(all, ranks.size())) {}

  void run() {
    const std::int64_t columns = std::max<std::int64_t>(kChunkElements / ranks_.size(), 1);
    mpi::for_each_chunk(row_, columns, [&](std::int64_t begin, std::int64_t count) {
      packed_.resize(static_cast<std::size_t>(count * ranks_.size()));
      summed_.resize(static_cast<std::size_t>(count));
      for (int rank = 0; rank < ranks_.size(); ++rank)
        load(rank * row_ + begin, packed_.data() + rank * count, count);
      ranks_.sum_scatter(packed_.data(), summed_.data(), count);
      store(begin, count);
    });
  }

 private:
  void load(std::int64_t element, Element* to, std::int64_t count) {
    const char* const from = at(all_.data, element, all_.scalar);
    if constexpr (std::is_same_v<Element, float>) {
      if (is_narrow(all_.scalar)) return widen(from, all_.scalar, to, count);
    }
    std::memcpy(to, from, static_cast<std::size_t>(count * size_of(all_.scalar)));
  }

  void store(std::int64_t element, std::int64_t count) {
    char* const to = at(piece_, element, all_.scalar);
    if constexpr (std::is_same_v<Element, float>) {
      if (is_narrow(all_.scalar)) return narrow(summed_.data(), all_.scalar, to, count);
    }
    std::memcpy(to, summed_.data(), static_cast<std::size_t>(count * size_of(all_.scalar)));
  }

  const mpi::Communicator& ranks_;
  Buffer all_;
  void* piece_;
  std::int64_t row_;
  std::vector<Element> packed_;
  std::vector<Element> summed_;
};

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
      static_cast<void>(new std::vector<float>(std::move(wide_)));
      error_ = error;
      queue_.clear();
    }
    changed_.notify_all();
  }
}

void MpiCommunicator::reduce(const Buffer& buffer) {
  switch (buffer.scalar) {
    case Scalar::float32:
      return ranks_.sum(static_cast<float*>(buffer.data), buffer.count);
    case Scalar::float64:
      return ranks_.sum(static_cast<double*>(buffer.data), buffer.count);
    case Scalar::int64:
      return ranks_.sum(static_cast<std::int64_t*>(buffer.data), buffer.count);
    case Scalar::uint8:
      return ranks_.sum(static_cast<std::uint8_t*>(buffer.data), buffer.count);
    case Scalar::float16:
    case Scalar::bfloat16:
      return reduce_narrow(buffer);
  }
}

void MpiCommunicator::reduce_narrow(const Buffer& buffer) {
  wide_.resize(static_cast<std::size_t>(std::min(buffer.count, kChunkElements)));
  mpi::for_each_chunk(buffer.count, kChunkElements, [&](std::int64_t begin, std::int64_t count) {
    char* const bits = at(buffer.data, begin, buffer.scalar);
    widen(bits, buffer.scalar, wide_.data(), count);
    ranks_.sum(wide_.data(), count);
    narrow(wide_.data(), buffer.scalar, bits, count);
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
      return ScatterByColumns<float>(ranks_, all, piece).run();
    case Scalar::float64:
      return ScatterByColumns<double>(ranks_, all, piece).run();
    case Scalar::int64:
      return ScatterByColumns<std::int64_t>(ranks_, all, piece).run();
    case Scalar::uint8:
      return ScatterByColumns<std::uint8_t>(ranks_, all, piece).run();
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
  return text("mpi (", mpi::library_version(), "), ", size(), size() == 1 ? " rank" : " ranks");
}

}  // namespace lockstep::comm
