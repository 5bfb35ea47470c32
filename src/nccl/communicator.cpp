#include "nccl/communicator.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "mpi/job.hpp"

namespace lockstep::nccl {

namespace {

constexpr double kLeaveSeconds = 5;
constexpr int kChannelsAlone = 32;  // docs/adr/0012-reduction-after-the-backward-pass.md

void pause_between_polls(std::int64_t polls) {
  if (polls < 1000) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::int64_t bytes_of(std::int64_t count, ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return count;
    case ncclFloat16:
    case ncclBfloat16:
      return 2 * count;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8 * count;
    default:
      return 4 * count;
  }
}

std::string words_of(ncclResult_t status, ncclComm_t comm) {
  const char* const last = ncclGetLastError(comm);
  const bool more = last != nullptr && *last != '\0';
  return text(ncclGetErrorString(status), more ? text(": ", last) : "");
}

/// Whether `work` returned within `seconds`. If not it goes on in a thread of its own: ncclCommAbort is known
/// to hang.
template <class Work>
bool done_within(double seconds, Work work) {
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  const auto progress = std::make_shared<Progress>();
  std::thread([progress, work] {
    work();
    const std::lock_guard lock(progress->mutex);
    progress->done = true;
    progress->changed.notify_all();
  }).detach();
  std::unique_lock lock(progress->mutex);
  return progress->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                    [&] { return progress->done; });
}

}  // namespace

std::string library_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "of unknown version";
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

Communicator::Communicator(const mpi::Communicator& world, const Options& options)
    : world_(world.duplicate()),
      timeout_seconds_(options.timeout_seconds),
      exceptions_when_made_(std::uncaught_exceptions()) {
  ncclUniqueId id{};
  mpi::on_root(world_, [&] {
    const ncclResult_t status = ncclGetUniqueId(&id);
    if (status != ncclSuccess) fail(status, "ncclGetUniqueId");
  });
  id = world_.broadcast_value(id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  // What NCCL chooses by itself leaves room for products beside it. Its variables NCCL_MIN_CTAS and
  // NCCL_MAX_CTAS go before these.
  if (options.max_channels > 0) {
    config.maxCTAs = options.max_channels;
  } else if (options.alone) {
    config.minCTAs = config.maxCTAs = kChannelsAlone;
  }
  try {
    complete(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), "ncclCommInitRankConfig");
  } catch (...) {
    abort();  // no destructor runs for an object that was not made
    throw;
  }
}

Communicator::~Communicator() {
  if (failed_ || std::uncaught_exceptions() > exceptions_when_made_) {
    abort();
  } else {
    finalize();
  }
}

void Communicator::complete(ncclResult_t status, const char* call, std::int64_t bytes) {
  ++sequence_;
  if (status != ncclSuccess && status != ncclInProgress) fail(status, call);
  // A call may return success and leave work behind all the same (ncclCommWindowRegister does); the next call
  // would then be refused. So the communicator is asked in every case.
  const Stopwatch watch;
  for (std::int64_t polls = 0;; ++polls) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &status);
    if (asked != ncclSuccess) fail(asked, "ncclCommGetAsyncError");
    if (status != ncclInProgress) break;
    if (watch.seconds() > timeout_seconds_) {
      failed_ = true;
      throw TimeoutError(call, sequence_, rank(), bytes, watch.seconds());
    }
    pause_between_polls(polls);
  }
  if (status != ncclSuccess) fail(status, call);
}

void Communicator::fail(ncclResult_t status, const char* call) {
  failed_ = true;
  const bool wrong_call = status == ncclInvalidArgument || status == ncclInvalidUsage;
  throw ApiError("NCCL", call, status, words_of(status, comm_),
                 wrong_call ? ExitCode::internal : ExitCode::unavailable);
}

void Communicator::check_health() {
  ncclResult_t status = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &status);
  if (asked != ncclSuccess) fail(asked, "ncclCommGetAsyncError");
  if (status != ncclSuccess && status != ncclInProgress) fail(status, "an earlier collective");
}

void Communicator::all_reduce(void* data, std::int64_t count, ncclDataType_t type, cudaStream_t stream) {
  complete(ncclAllReduce(data, data, static_cast<std::size_t>(count), type, ncclSum, comm_, stream),
           "ncclAllReduce", bytes_of(count, type));
}

void Communicator::broadcast(void* data, std::int64_t count, ncclDataType_t type, int root,
                             cudaStream_t stream) {
  complete(ncclBroadcast(data, data, static_cast<std::size_t>(count), type, root, comm_, stream),
           "ncclBroadcast", bytes_of(count, type));
}

void Communicator::all_gather(const void* piece, void* all, std::int64_t count, ncclDataType_t type,
                              cudaStream_t stream) {
  complete(ncclAllGather(piece, all, static_cast<std::size_t>(count), type, comm_, stream), "ncclAllGather",
           bytes_of(count, type));
}

void Communicator::reduce_scatter(const void* all, void* piece, std::int64_t count, ncclDataType_t type,
                                  cudaStream_t stream) {
  complete(ncclReduceScatter(all, piece, static_cast<std::size_t>(count), type, ncclSum, comm_, stream),
           "ncclReduceScatter", bytes_of(count, type));
}

void Communicator::abort() noexcept {
  if (comm_ == nullptr) return;
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  failed_ = true;
  try {
    int device = 0;
    cudaGetDevice(&device);
    const bool done = done_within(kLeaveSeconds, [comm, device] {
      cudaSetDevice(device);
      ncclCommAbort(comm);
    });
    if (!done)
      log::warn(text("ncclCommAbort did not return within ", kLeaveSeconds, " s; leaving without it"));
  } catch (const std::exception&) {
    // No thread to be had: the process is about to end, and its end frees what the communicator holds.
  }
}

void Communicator::finalize() noexcept {
  if (comm_ == nullptr) return;
  try {
    timeout_seconds_ = kLeaveSeconds;
    complete(ncclCommFinalize(comm_), "ncclCommFinalize");
    ncclCommDestroy(std::exchange(comm_, nullptr));
  } catch (const std::exception& error) {
    try {
      log::warn(error.what());
    } catch (const std::exception&) {
    }
    abort();
  }
}

}  // namespace lockstep::nccl
