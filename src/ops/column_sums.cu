#include <algorithm>

#include "cuda/error.hpp"
#include "ops/device.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kRowLanes = 8;            // a block is 32 threads wide and 8 rows high
constexpr int kUnroll = 4;              // rows in flight of one thread
constexpr std::int64_t kMostRowBlocks = 256;
constexpr std::int64_t kLeastRows = 64;  // of a row block
constexpr int kPartLanes = 8;           // threads that add up one column's parts

/// Each thread takes N neighbouring columns of every eighth row of its row block.
template <class T, int N>
__global__ void __launch_bounds__(kWarp* kRowLanes)
    add_rows(const T* matrix, std::int64_t rows, std::int64_t columns, std::int64_t block_rows, float* partial) {
  const std::int64_t column = (std::int64_t{blockIdx.x} * kWarp + threadIdx.x) * N;
  const std::int64_t first = std::int64_t{blockIdx.y} * block_rows;
  const std::int64_t end = min(first + block_rows, rows);
  float sums[N] = {};
  if (column < columns) {
    for (std::int64_t row = first + threadIdx.y; row < end; row += kRowLanes * kUnroll) {
      Pack<T, N> values[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        if (row + i * kRowLanes >= end) continue;
        values[i] = load<N>(matrix, ((row + i * kRowLanes) * columns + column) / N);
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        if (row + i * kRowLanes >= end) continue;
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] += to_float(values[i].at[k]);
      }
    }
  }
  __shared__ float parts[kRowLanes][kWarp * N];
#pragma unroll
  for (int k = 0; k < N; ++k) parts[threadIdx.y][k * kWarp + threadIdx.x] = sums[k];  // no bank is hit twice
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    float sum = 0;
#pragma unroll
    for (int lane = 0; lane < kRowLanes; ++lane) sum += parts[lane][k * kWarp + threadIdx.x];
    partial[std::int64_t{blockIdx.y} * columns + column + k] = sum;
  }
}

/// sums[c] (+)= the parts of column c, in a fixed order.
template <class T>
__global__ void add_parts(const float* partial, std::int64_t parts, std::int64_t columns, T* sums, bool adds) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (std::int64_t part = threadIdx.y; part < parts; part += kPartLanes) sum += partial[part * columns + column];
  }
  __shared__ float shared[kPartLanes][kWarp];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  sum = adds ? to_float(sums[column]) : 0.0f;
  for (int lane = 0; lane < kPartLanes; ++lane) sum += shared[lane][threadIdx.x];
  sums[column] = from_float<T>(sum);
}

}  // namespace

std::int64_t row_blocks(std::int64_t rows) {
  return std::min(kMostRowBlocks, (rows + kLeastRows - 1) / kLeastRows);
}

void column_sums(const Matrix& matrix, float* partial, void* sums, bool adds, cudaStream_t stream) {
  if (matrix.columns == 0) return;
  const std::int64_t blocks = row_blocks(matrix.rows);
  with_floating(matrix.element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = [&](auto width) {
      constexpr int N = decltype(width)::value;
      const dim3 grid(blocks_for(matrix.columns, kWarp * N), static_cast<unsigned>(blocks));
      add_rows<T, N><<<grid, dim3(kWarp, kRowLanes), 0, stream>>>(static_cast<const T*>(matrix.data), matrix.rows,
                                                                 matrix.columns, (matrix.rows + blocks - 1) / blocks,
                                                                 partial);
    };
    const bool wide = matrix.columns % kWide<T> == 0 && is_aligned(matrix.data);
    if (blocks > 0 && wide) run(std::integral_constant<int, kWide<T>>{});
    if (blocks > 0 && !wide) run(std::integral_constant<int, 1>{});
    add_parts<T><<<blocks_for(matrix.columns, kWarp), dim3(kWarp, kPartLanes), 0, stream>>>(
        partial, blocks, matrix.columns, static_cast<T*>(sums), adds);
  });
  cuda::check(cudaGetLastError(), "column_sums");
}

}  // namespace lockstep::ops::cuda_kernels
