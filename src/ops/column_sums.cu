#include <algorithm>

#include "cuda/error.hpp"
#include "ops/device.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kRowLanes = 8;  // a block is 32 threads wide and 8 rows high
constexpr int kUnroll = 4;    // rows in flight of one thread
constexpr std::int64_t kMostRowBlocks = 256;
constexpr std::int64_t kLeastRows = 64;  // of a row block
constexpr int kPartLanes = 32;           // threads that add up one column's parts

/// Rounds N floats, two at a time where one instruction does two.
template <class T, int N>
__device__ Pack<T, N> round_pack(const float (&values)[N]) {
  Pack<T, N> pack;
  if constexpr (std::is_same_v<T, __half> && N % 2 == 0) {
#pragma unroll
    for (int k = 0; k < N; k += 2)
      reinterpret_cast<__half2*>(pack.at)[k / 2] = __floats2half2_rn(values[k], values[k + 1]);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) pack.at[k] = from_float<T>(values[k]);
  }
  return pack;
}

/// Sums of the rows of `matrix`; with kGelu of its product with GELU's slope at `before`, which takes its
/// place. Each thread takes N neighbouring columns of every eighth row of its row block.
template <class T, int N, bool kGelu>
__global__ void __launch_bounds__(kWarp* kRowLanes)
    add_rows(T* matrix, const T* before, std::int64_t rows, std::int64_t columns, std::int64_t block_rows,
             float* partial) {
  const std::int64_t column = (std::int64_t{blockIdx.x} * kWarp + threadIdx.x) * N;
  const std::int64_t first = std::int64_t{blockIdx.y} * block_rows;
  const std::int64_t end = min(first + block_rows, rows);
  float sums[N] = {};
  if (column < columns) {
    for (std::int64_t row = first + threadIdx.y; row < end; row += kRowLanes * kUnroll) {
      Pack<T, N> values[kUnroll];
      [[maybe_unused]] Pack<T, N> inputs[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        if (row + i * kRowLanes >= end) continue;
        const std::int64_t place = ((row + i * kRowLanes) * columns + column) / N;
        values[i] = load<N>(matrix, place);
        if constexpr (kGelu) inputs[i] = load<N>(before, place);
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        if (row + i * kRowLanes >= end) continue;
        float numbers[N];
#pragma unroll
        for (int k = 0; k < N; ++k) {
          numbers[k] = to_float(values[i].at[k]);
          if constexpr (kGelu) {
            const float x = to_float(inputs[i].at[k]);
            numbers[k] *= gelu_slope(x, gelu_gate(x));
          }
          sums[k] += numbers[k];
        }
        if constexpr (kGelu)
          store(matrix, ((row + i * kRowLanes) * columns + column) / N, round_pack<T, N>(numbers));
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
__global__ void add_partial_rows(const float* partial, std::int64_t parts, std::int64_t columns, T* sums,
                                 bool adds) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (std::int64_t part = threadIdx.y; part < parts; part += kPartLanes)
      sum += partial[part * columns + column];
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

namespace {

template <bool kGelu>
void launch(const ColumnSums& a, void* matrix, const void* before, cudaStream_t stream) {
  if (a.columns == 0) return;
  const std::int64_t blocks = row_blocks(a.rows);
  with_floating(a.element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = [&](auto width) {
      constexpr int N = decltype(width)::value;
      const dim3 grid(blocks_for(a.columns, kWarp * N), static_cast<unsigned>(blocks));
      add_rows<T, N, kGelu><<<grid, dim3(kWarp, kRowLanes), 0, stream>>>(
          static_cast<T*>(matrix), static_cast<const T*>(before), a.rows, a.columns,
          (a.rows + blocks - 1) / blocks, a.partial);
    };
    const bool wide = a.columns % kWide<T> == 0 && is_aligned(matrix) && is_aligned(before);
    if (blocks > 0 && wide) run(std::integral_constant<int, kWide<T>>{});
    if (blocks > 0 && !wide) run(std::integral_constant<int, 1>{});
  });
  cuda::check(cudaGetLastError(), kGelu ? "gelu_gradient" : "column_sums");
  add_parts(a, blocks, stream);
}

}  // namespace

void add_parts(const ColumnSums& a, std::int64_t parts, cudaStream_t stream) {
  if (a.columns == 0) return;
  with_floating(a.element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    add_partial_rows<T><<<blocks_for(a.columns, kWarp), dim3(kWarp, kPartLanes), 0, stream>>>(
        a.partial, parts, a.columns, static_cast<T*>(a.sums), a.adds);
  });
  cuda::check(cudaGetLastError(), "add_parts");
}

void column_sums(const ColumnSums& sums, const void* matrix, cudaStream_t stream) {
  launch<false>(sums, const_cast<void*>(matrix), nullptr, stream);
}

void gelu_gradient(const ColumnSums& sums, void* gradient, const void* before, cudaStream_t stream) {
  launch<true>(sums, gradient, before, stream);
}

}  // namespace lockstep::ops::cuda_kernels
