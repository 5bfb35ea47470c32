#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <mpi.h>

#include "base/handle.hpp"

namespace lockstep::mpi {

struct CommunicatorTraits {
  using Type = MPI_Comm;
  static Type empty() { return MPI_COMM_NULL; }
  static void release(Type raw) noexcept;
};

/// How long a rank waits in a collective for the others. Either end raises an Error on this rank alone; MPI
/// may still write to the buffers of a collective that was given up, so they are kept until the job has
/// ended.
struct Patience {
  double timeout_seconds = std::numeric_limits<double>::infinity();
  const std::atomic<bool>* stop = nullptr;  ///< when it turns true the wait is given up
};

/// Sole owner of one MPI communicator that returns its errors. All members but the observers are collective:
/// every rank calls them, in the same order. Waiting ranks yield their core, so more ranks than cores work
/// well. Throws ApiError("MPI", call, code, words) when a call fails and TimeoutError when patience ends.
class Communicator {
 public:
  /// Collective: a duplicate of MPI_COMM_WORLD.
  static Communicator world();

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm raw() const { return handle_->get(); }

  /// The same ranks with message traffic of their own, so that another thread may use it at the same time.
  Communicator duplicate() const;
  /// The ranks that share this rank's memory, in the order of this communicator.
  Communicator split_by_node() const;
  void set_patience(Patience patience) { patience_ = patience; }

  void barrier() const;
  /// False when some rank did not come within `seconds`; the communicator is then of no further use.
  bool barrier_within(double seconds) const;
  /// `size` bytes of any length.
  void broadcast(void* bytes, std::int64_t size, int root) const;
  std::string broadcast_text(std::string words, int root = 0) const;
  template <class T>
  T broadcast_value(T value, int root = 0) const {
    static_assert(std::is_trivially_copyable_v<T>);
    broadcast(&value, sizeof(T), root);
    return value;
  }

  /// Sums `count` elements over ranks, in place. All ranks get the same bits.
  void sum(float* values, std::int64_t count) const;
  void sum(double* values, std::int64_t count) const;
  void sum(std::int64_t* values, std::int64_t count) const;
  void sum(std::uint8_t* values, std::int64_t count) const;

  std::int64_t min(std::int64_t value) const;
  std::int64_t max(std::int64_t value) const;
  double min(double value) const;
  double max(double value) const;

  /// `all` [size, count] is summed over ranks and row r arrives in rank r's `piece` [count]; they do not
  /// overlap and size * count is below 2^31.
  void sum_scatter(const float* all, float* piece, std::int64_t count) const;
  void sum_scatter(const double* all, double* piece, std::int64_t count) const;
  void sum_scatter(const std::int64_t* all, std::int64_t* piece, std::int64_t count) const;
  void sum_scatter(const std::uint8_t* all, std::uint8_t* piece, std::int64_t count) const;

  /// Every rank's `size` bytes, in rank order, into `all` [size(), size]. `piece` may be this rank's row of
  /// `all`.
  void all_gather(const void* piece, std::int64_t size, void* all) const;
  std::vector<std::int64_t> all_gather(std::int64_t value) const;
  std::vector<std::string> all_gather_text(const std::string& words) const;

 private:
  explicit Communicator(MPI_Comm raw);
  /// Completes `request`, which carries `bytes`, or gives up as `patience` says.
  void wait(MPI_Request request, const char* call, std::int64_t bytes, const Patience& patience) const;
  void wait(MPI_Request request, const char* call, std::int64_t bytes) const {
    wait(request, call, bytes, patience_);
  }
  void sum_all(void* values, std::int64_t count, MPI_Datatype type, std::int64_t element_bytes) const;
  void scatter_sum(const void* all, void* piece, std::int64_t count, MPI_Datatype type,
                   std::int64_t element_bytes) const;
  void reduce_one(void* value, MPI_Datatype type, MPI_Op operation) const;

  std::shared_ptr<const Handle<CommunicatorTraits>> handle_;  ///< shared with collectives that were given up
  Patience patience_;
  mutable std::int64_t sequence_ = 0;  ///< collectives so far, to name one in an error
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace lockstep::mpi
