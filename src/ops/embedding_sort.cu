#include <cub/device/device_radix_sort.cuh>

#include "cuda/error.hpp"
#include "ops/device.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kThreads = 256;

__global__ void number_tokens(const std::int64_t* tokens, std::int64_t count, std::int64_t vocabulary,
                              std::uint32_t* keys, std::int32_t* sequence) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t token = tokens[i];
  keys[i] = static_cast<std::uint32_t>(token >= 0 && token < vocabulary ? token : vocabulary);
  sequence[i] = static_cast<std::int32_t>(i);
}

/// Bits of the largest key, which is the vocabulary's size itself.
int key_bits(std::int64_t vocabulary) {
  int bits = 1;
  while (vocabulary >> bits != 0) ++bits;
  return bits;
}

}  // namespace

std::size_t sort_bytes(const EmbeddingShape& shape) {
  std::size_t bytes = 0;
  cuda::check(
      cub::DeviceRadixSort::SortPairs(
          nullptr, bytes, static_cast<const std::uint32_t*>(nullptr), static_cast<std::uint32_t*>(nullptr),
          static_cast<const std::int32_t*>(nullptr), static_cast<std::int32_t*>(nullptr),
          static_cast<int>(shape.batch * shape.length), 0, key_bits(shape.vocabulary)),
      "cub::DeviceRadixSort::SortPairs");
  return bytes;
}

void sort_tokens(const EmbeddingShape& shape, const std::int64_t* tokens, const SortedTokens& sorted,
                 cudaStream_t stream) {
  const std::int64_t count = shape.batch * shape.length;
  if (count == 0) return;
  number_tokens<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(tokens, count, shape.vocabulary,
                                                                      sorted.unsorted, sorted.sequence);
  cuda::check(cudaGetLastError(), "number_tokens");
  std::size_t bytes = sort_bytes(shape);
  cuda::check(cub::DeviceRadixSort::SortPairs(sorted.work, bytes, sorted.unsorted, sorted.tokens,
                                              sorted.sequence, sorted.rows, static_cast<int>(count), 0,
                                              key_bits(shape.vocabulary), stream),
              "cub::DeviceRadixSort::SortPairs");
}

}  // namespace lockstep::ops::cuda_kernels
