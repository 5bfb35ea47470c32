#include "comm/single.hpp"

#include <algorithm>
#include <cstring>

#include "comm/check.hpp"
#include "comm/host_memory.hpp"
#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"

namespace lockstep::comm {

SingleCommunicator::SingleCommunicator(const Options& options, cudaStream_t compute)
    : Communicator(0, 1), cuda_(options.cuda), compute_(compute) {}

void SingleCommunicator::copy(void* to, const void* from, std::int64_t bytes) const {
  if (to == from || bytes == 0) return;
  if (cuda_) {
    cuda::copy(to, from, bytes, compute_);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

void SingleCommunicator::start_all_reduce(Buffer buffer) {
  check_buffer(buffer, "all_reduce");
}

void SingleCommunicator::broadcast(Buffer buffer, int root) {
  check_buffer(buffer, "broadcast");
  check_root(root, size());
}

void SingleCommunicator::all_gather(Buffer piece, void* all) {
  check_buffer(piece, "all_gather");
  copy(all, piece.data, piece.bytes());
}

void SingleCommunicator::reduce_scatter(Buffer all, void* piece) {
  check_buffer(all, "reduce_scatter");
  copy(piece, all.data, all.bytes());
}

void SingleCommunicator::barrier() {
  if (cuda_) cuda::synchronize(compute_);
}

std::shared_ptr<void> SingleCommunicator::allocate(std::int64_t bytes) {
  if (!cuda_) return allocate_host(bytes);
  const auto buffer = std::make_shared<cuda::DeviceBuffer>(std::max<std::int64_t>(bytes, 1));
  cuda::clear(buffer->data(), bytes, compute_);
  cuda::synchronize(compute_);
  return {buffer, buffer->data()};
}

}  // namespace lockstep::comm
