#pragma once

#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "mpi/communicator.hpp"

namespace lockstep::nccl {

/// "2.28.9", of the library that is loaded.
std::string library_version();

struct Options {
  double timeout_seconds =
      600;               ///< of a call that the host waits for: making the communicator, registering memory
  int max_channels = 0;  ///< multiprocessors (CTAs) that a collective may take; 0: NCCL decides, or `alone`
  bool alone = false;    ///< nothing else runs on the device during a collective: it takes 32 of them
};

/// One NCCL communicator over the ranks of an MPI communicator, on the calling thread's device. NCCL never
/// blocks the host: each call is followed until NCCL has accepted it, within the timeout. Collectives run on
/// the given stream and may be captured into a graph; graphs that hold one are destroyed before the
/// communicator. Errors: ApiError("NCCL", call, code, NCCL's own words), TimeoutError.
class Communicator {
 public:
  /// Collective. Every rank has a device of its own.
  Communicator(const mpi::Communicator& world, const Options& options);

  /// Collective after success. While an exception unwinds, or after an error, the communicator is aborted
  /// instead, within seconds and without the other ranks.
  ~Communicator();

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  const mpi::Communicator& world() const { return world_; }
  ncclComm_t raw() const { return comm_; }
  bool usable() const { return comm_ != nullptr && !failed_; }

  /// Sums `count` elements over ranks, in place. ncclSum, never ncclAvg: that one multiplies in half
  /// precision first.
  void all_reduce(void* data, std::int64_t count, ncclDataType_t type, cudaStream_t stream);
  void broadcast(void* data, std::int64_t count, ncclDataType_t type, int root, cudaStream_t stream);
  /// `piece` [count] of every rank into `all` [size, count].
  void all_gather(const void* piece, void* all, std::int64_t count, ncclDataType_t type, cudaStream_t stream);
  /// Row r of the sum of `all` [size, count] into rank r's `piece` [count].
  void reduce_scatter(const void* all, void* piece, std::int64_t count, ncclDataType_t type,
                      cudaStream_t stream);

  /// Throws what went wrong on the device or the network since the last call. A dead peer on the same host is
  /// not seen here.
  void check_health();

  /// Follows a call that returned `status` until NCCL has done it. `bytes` is for the message.
  void complete(ncclResult_t status, const char* call, std::int64_t bytes = 0);

  /// Ends all work at once, within seconds; for a rank that leaves the job after an error. Every rank does
  /// it.
  void abort() noexcept;

 private:
  void finalize() noexcept;
  [[noreturn]] void fail(ncclResult_t status, const char* call);

  mpi::Communicator world_;
  double timeout_seconds_;
  ncclComm_t comm_ = nullptr;
  std::int64_t sequence_ = 0;  ///< calls so far, to name one in an error
  bool failed_ = false;
  int exceptions_when_made_ = 0;
};

}  // namespace lockstep::nccl
