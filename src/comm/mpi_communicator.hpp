#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "mpi/communicator.hpp"

namespace lockstep::comm {

/// Ranks on CPUs. One thread takes started reductions from a queue, so that they run beside the backward pass
/// of the calling thread; all other calls wait for the queue to drain and then run on the calling thread. An
/// error of that thread is raised by the next `finish`, and by every later call: the ranks are no longer in
/// step.
class MpiCommunicator final : public Communicator {
 public:
  /// Collective.
  MpiCommunicator(const mpi::Communicator& world, const Options& options);
  /// Gives up what is still queued: after an error the other ranks may never join it.
  ~MpiCommunicator() override;

  void start_all_reduce(Buffer buffer) override;
  void finish() override;
  void broadcast(Buffer buffer, int root) override;
  void all_gather(Buffer piece, void* all) override;
  void reduce_scatter(Buffer all, void* piece) override;
  void barrier() override;
  std::shared_ptr<void> allocate(std::int64_t bytes) override;
  std::string describe() const override;

 private:
  void work();
  void reduce(const Buffer& buffer);
  template <class Element>
  void reduce_as(const Buffer& buffer);

  std::atomic<bool> stop_ = false;
  mpi::Communicator ranks_;       ///< used by one thread at a time: the worker while the queue is not idle
  std::vector<std::byte> chunk_;  ///< what is being summed

  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  std::deque<Buffer> queue_;
  bool working_ = false;
  std::exception_ptr error_;
  std::thread worker_;
};

}  // namespace lockstep::comm
