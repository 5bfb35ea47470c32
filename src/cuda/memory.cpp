#include "cuda/memory.hpp"

#include "base/text.hpp"
#include "cuda/error.hpp"

namespace lockstep::cuda {

void DeviceMemoryTraits::release(void* raw) noexcept {
  cudaFree(raw);
}
void PinnedMemoryTraits::release(void* raw) noexcept {
  cudaFreeHost(raw);
}

DeviceBuffer::DeviceBuffer(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  check(cudaMalloc(handle_.out(), static_cast<std::size_t>(bytes)),
        text("cudaMalloc(", format_bytes(bytes), ")"));
}

PinnedBuffer::PinnedBuffer(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  check(cudaMallocHost(handle_.out(), static_cast<std::size_t>(bytes)),
        text("cudaMallocHost(", format_bytes(bytes), ")"));
}

void copy(void* to, const void* from, std::int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
}

void clear(void* data, std::int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(data, 0, static_cast<std::size_t>(bytes), stream), "cudaMemsetAsync");
}

}  // namespace lockstep::cuda
