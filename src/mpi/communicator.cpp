#include "mpi/communicator.hpp"

#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "mpi/check.hpp"
#include "mpi/chunks.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{1} << 30;
// Non-blocking reductions of MPI keep a copy of the whole message, so sums travel in smaller pieces.
constexpr std::int64_t kSumChunkBytes = std::int64_t{8} << 20;

/// Leaves the core to others more and more the longer a wait lasts: a rank that spins would take it from a
/// rank that computes wherever there are more ranks (or threads) than cores.
void pause_between_tests(std::int64_t tests) {
  if (tests < 64) return;
  if (tests < 128) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(tests < 512 ? 20 : 200));
  }
}

}  // namespace

void CommunicatorTraits::release(MPI_Comm raw) noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&raw);
}

Communicator::Communicator(MPI_Comm raw) : handle_(std::make_shared<const Handle<CommunicatorTraits>>(raw)) {
  check(MPI_Comm_set_errhandler(raw, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(raw, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(raw, &size_), "MPI_Comm_size");
}

Communicator Communicator::world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup(MPI_COMM_WORLD)");
  return Communicator(copy);
}

Communicator Communicator::duplicate() const {
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(raw(), &copy), "MPI_Comm_dup");
  return Communicator(copy);
}

Communicator Communicator::split_by_node() const {
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(raw(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type(MPI_COMM_TYPE_SHARED)");
  return Communicator(node);
}

void Communicator::wait(MPI_Request request, const char* call, std::int64_t bytes,
                        const Patience& patience) const {
  const Stopwatch watch;
  ++sequence_;
  for (std::int64_t tests = 0;; ++tests) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
    if (done) return;
    pause_between_tests(tests);
    const bool stopped = patience.stop && patience.stop->load(std::memory_order_relaxed);
    if (!stopped && watch.seconds() <= patience.timeout_seconds) continue;
    // MPI goes on with the collective in later calls, which would crash if the communicator was freed: keep
    // it for ever.
    static_cast<void>(new auto(handle_));
    if (!stopped) throw TimeoutError(call, sequence_, rank_, bytes, watch.seconds());
    throw Error(ExitCode::unavailable,
                text(call, " was given up on rank ", rank_, ", which is leaving the job"));
  }
}

void Communicator::barrier() const {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(raw(), &request), "MPI_Ibarrier");
  wait(request, "MPI_Ibarrier", 0);
}

bool Communicator::barrier_within(double seconds) const {
  try {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(raw(), &request), "MPI_Ibarrier");
    wait(request, "MPI_Ibarrier", 0, Patience{seconds, nullptr});
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Communicator::broadcast(void* bytes, std::int64_t size, int root) const {
  for_each_chunk(size, kChunkBytes, [&](std::int64_t begin, std::int64_t count) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(static_cast<char*>(bytes) + begin, static_cast<int>(count), MPI_BYTE, root, raw(),
                     &request),
          "MPI_Ibcast");
    wait(request, "MPI_Ibcast", count);
  });
}

std::string Communicator::broadcast_text(std::string words, int root) const {
  const auto size = broadcast_value(static_cast<std::int64_t>(words.size()), root);
  words.resize(static_cast<std::size_t>(size));
  broadcast(words.data(), size, root);
  return words;
}

void Communicator::sum_all(void* values, std::int64_t count, MPI_Datatype type,
                           std::int64_t element_bytes) const {
  for_each_chunk(count, kSumChunkBytes / element_bytes, [&](std::int64_t begin, std::int64_t length) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, static_cast<char*>(values) + begin * element_bytes,
                         static_cast<int>(length), type, MPI_SUM, raw(), &request),
          "MPI_Iallreduce");
    wait(request, "MPI_Iallreduce", length * element_bytes);
  });
}

void Communicator::sum(float* values, std::int64_t count) const {
  sum_all(values, count, MPI_FLOAT, 4);
}
void Communicator::sum(double* values, std::int64_t count) const {
  sum_all(values, count, MPI_DOUBLE, 8);
}
void Communicator::sum(std::int64_t* values, std::int64_t count) const {
  sum_all(values, count, MPI_INT64_T, 8);
}
void Communicator::sum(std::uint8_t* values, std::int64_t count) const {
  sum_all(values, count, MPI_UINT8_T, 1);
}

void Communicator::reduce_one(void* value, MPI_Datatype type, MPI_Op operation) const {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(MPI_IN_PLACE, value, 1, type, operation, raw(), &request), "MPI_Iallreduce");
  wait(request, "MPI_Iallreduce", 8);
}

std::int64_t Communicator::min(std::int64_t value) const {
  reduce_one(&value, MPI_INT64_T, MPI_MIN);
  return value;
}

std::int64_t Communicator::max(std::int64_t value) const {
  reduce_one(&value, MPI_INT64_T, MPI_MAX);
  return value;
}

double Communicator::min(double value) const {
  reduce_one(&value, MPI_DOUBLE, MPI_MIN);
  return value;
}

double Communicator::max(double value) const {
  reduce_one(&value, MPI_DOUBLE, MPI_MAX);
  return value;
}

void Communicator::scatter_sum(const void* all, void* piece, std::int64_t count, MPI_Datatype type,
                               std::int64_t element_bytes) const {
  if (count * size_ > std::numeric_limits<int>::max()) {
    throw UsageError(text("sum_scatter of ", count * size_, " elements, but the limit is 2147483647"));
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ireduce_scatter_block(all, piece, static_cast<int>(count), type, MPI_SUM, raw(), &request),
        "MPI_Ireduce_scatter_block");
  wait(request, "MPI_Ireduce_scatter_block", count * element_bytes);
}

void Communicator::sum_scatter(const float* all, float* piece, std::int64_t count) const {
  scatter_sum(all, piece, count, MPI_FLOAT, 4);
}
void Communicator::sum_scatter(const double* all, double* piece, std::int64_t count) const {
  scatter_sum(all, piece, count, MPI_DOUBLE, 8);
}
void Communicator::sum_scatter(const std::int64_t* all, std::int64_t* piece, std::int64_t count) const {
  scatter_sum(all, piece, count, MPI_INT64_T, 8);
}
void Communicator::sum_scatter(const std::uint8_t* all, std::uint8_t* piece, std::int64_t count) const {
  scatter_sum(all, piece, count, MPI_UINT8_T, 1);
}

void Communicator::all_gather(const void* piece, std::int64_t size, void* all) const {
  char* const own = static_cast<char*>(all) + rank_ * size;
  if (size <= kChunkBytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(piece == own ? MPI_IN_PLACE : piece, static_cast<int>(size), MPI_BYTE, all,
                         static_cast<int>(size), MPI_BYTE, raw(), &request),
          "MPI_Iallgather");
    wait(request, "MPI_Iallgather", size);
    return;
  }
  if (piece != own) std::copy_n(static_cast<const char*>(piece), size, own);
  for (int root = 0; root < size_; ++root) broadcast(static_cast<char*>(all) + root * size, size, root);
}

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value) const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  all_gather(&value, sizeof value, all.data());
  return all;
}

std::vector<std::string> Communicator::all_gather_text(const std::string& words) const {
  const auto sizes = all_gather(static_cast<std::int64_t>(words.size()));
  std::vector<std::string> all(sizes.size());
  for (int root = 0; root < size_; ++root) {
    auto& row = all[static_cast<std::size_t>(root)];
    row = root == rank_ ? words : std::string(static_cast<std::size_t>(sizes[root]), '\0');
    broadcast(row.data(), sizes[root], root);
  }
  return all;
}

}  // namespace lockstep::mpi
