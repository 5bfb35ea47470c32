#pragma once

#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "cuda/stream.hpp"
#include "nccl/communicator.hpp"
#include "nccl/memory.hpp"

namespace lockstep::comm {

/// One rank a GPU. Collectives run on a high-priority stream of their own, which forks from the compute
/// stream where each one starts and joins it in `finish`, by events alone: the same calls work while the
/// compute stream is captured into a graph, from the first fork to the join.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective. `compute` outlives the communicator.
  NcclCommunicator(const mpi::Communicator& world, const Options& options, cudaStream_t compute);

  void start_all_reduce(Buffer buffer) override;
  void finish() override;
  void broadcast(Buffer buffer, int root) override;
  void all_gather(Buffer piece, void* all) override;
  void reduce_scatter(Buffer all, void* piece) override;
  void barrier() override;
  std::shared_ptr<void> allocate(std::int64_t bytes) override;
  std::string describe() const override;

 private:
  /// Later work of the own stream starts after what the compute stream holds now.
  void fork();

  std::shared_ptr<nccl::Communicator> ranks_;  ///< shared with the memory that is registered with it
  cudaStream_t compute_;
  cuda::Stream stream_{cuda::Priority::high};
  cuda::Event ready_;
  cuda::Event done_;
  bool forked_ = false;
  double timeout_seconds_;
  const char* memory_ = nullptr;  ///< how the last allocation was registered
};

}  // namespace lockstep::comm
