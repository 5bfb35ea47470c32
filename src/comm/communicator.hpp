#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "mpi/communicator.hpp"

namespace lockstep::comm {

enum class Scalar { float32, float16, bfloat16, float64, int64, uint8 };

/// Bytes of one element.
std::int64_t size_of(Scalar scalar);
/// "float16"
std::string name_of(Scalar scalar);

/// `count` elements of device memory on CUDA ranks, of host memory otherwise. Owned by the caller, who keeps
/// it until `finish` (on CUDA: until the compute stream has passed it).
struct Buffer {
  void* data;
  std::int64_t count;
  Scalar scalar;

  std::int64_t bytes() const { return count * size_of(scalar); }
};

/// The ranks of a job and what they do together to arrays. Every call is collective, in the same order and
/// with the same counts on every rank, from one thread. On CUDA all work is ordered with the compute stream
/// and the host does not wait, except in `barrier` and `allocate`. Errors: UsageError (arguments), ApiError
/// (library), TimeoutError.
///
/// Sums of float16 and bfloat16: on CPU ranks widened to float32, summed, and rounded once to nearest even;
/// on CUDA the same with symmetric memory, otherwise rounded at each hop. A sum beyond the largest half is
/// infinity on every rank.
class Communicator {
 public:
  virtual ~Communicator();
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Sum over ranks, in place. Starts after everything on the compute stream so far; runs beside what
  /// follows.
  virtual void start_all_reduce(Buffer buffer) = 0;
  /// The compute stream (CPU ranks: the calling thread) continues after all started reductions, and sees
  /// their errors.
  virtual void finish() = 0;
  void all_reduce(Buffer buffer) {
    start_all_reduce(buffer);
    finish();
  }

  /// Root's `buffer` on every rank.
  virtual void broadcast(Buffer buffer, int root) = 0;
  /// `piece` [count] of every rank, in rank order, into `all` [size, count]. `piece` may be this rank's row
  /// of `all`.
  virtual void all_gather(Buffer piece, void* all) = 0;
  /// `all` [size, count] is summed over ranks and row r arrives in rank r's `piece` [count], which may be
  /// that row of `all`; other rows of `all` are left undefined. `all.count` is a multiple of the size.
  virtual void reduce_scatter(Buffer all, void* piece) = 0;
  /// The host waits until every rank is here with all its earlier work done.
  virtual void barrier() = 0;

  /// Collective: memory for gradients, registered with the transport where it can be: device memory on CUDA,
  /// host memory otherwise; zeroed, 64-byte aligned. Freed when the last pointer goes, which may be after the
  /// communicator.
  virtual std::shared_ptr<void> allocate(std::int64_t bytes) = 0;
  /// "nccl 2.28.9, 2 ranks, symmetric memory", "mpi (Open MPI 4.1.4), 4 ranks", "single"
  virtual std::string describe() const = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_;
  int size_;
};

struct Options {
  bool cuda = false;             ///< the calling thread's device holds the data
  double timeout_seconds = 600;  ///< of one collective, where the host waits for it
  int max_channels = 0;          ///< multiprocessors that NCCL may take; 0: NCCL decides, or `sums_alone`
  bool sums_alone = false;       ///< nothing else runs on the device meanwhile, so NCCL may take more
};

/// Collective: the implementation that fits the world size and the device. `compute` is the stream that
/// produces and consumes the buffers; CPU ranks pass nullptr.
std::unique_ptr<Communicator> make_communicator(const mpi::Communicator& world, const Options& options,
                                                cudaStream_t compute);

}  // namespace lockstep::comm
