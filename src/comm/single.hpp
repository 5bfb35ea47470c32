#pragma once

#include <memory>
#include <string>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// A world of one rank: sums are what they were. On CUDA, copies are ordered with the compute stream.
class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator(const Options& options, cudaStream_t compute);

  void start_all_reduce(Buffer buffer) override;
  void finish() override {}
  void broadcast(Buffer buffer, int root) override;
  void all_gather(Buffer piece, void* all) override;
  void reduce_scatter(Buffer all, void* piece) override;
  void barrier() override;
  std::shared_ptr<void> allocate(std::int64_t bytes) override;
  std::string describe() const override { return "single"; }

 private:
  void copy(void* to, const void* from, std::int64_t bytes) const;

  bool cuda_;
  cudaStream_t compute_;
};

}  // namespace lockstep::comm
