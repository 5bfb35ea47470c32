#include <algorithm>

#include "cuda/error.hpp"
#include "ops/device.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kForwardWarps = 4;
constexpr int kAnyThreads = 256;
/// Of the backward pass: two for each of an H200's 132 multiprocessors, and the same number on every
/// other card, so that the order of the sums over rows does not depend on the card.
constexpr std::int64_t kMostBlocks = 264;

/// A warp holds kRows rows in registers, lane l their packs l, l + 32, ...: each row is read once.
template <class T, int kPacks, int kRows>
__global__ void __launch_bounds__(kForwardWarps* kWarp)
    forward_rows(const T* x, std::int64_t rows, int columns, const float* weight, const float* bias,
                 float epsilon, T* out, float* mean, float* rstd) {
  constexpr int N = kWide<T>;
  const int lane = threadIdx.x % kWarp;
  const std::int64_t first = (std::int64_t{blockIdx.x} * kForwardWarps + threadIdx.x / kWarp) * kRows;
  const int packs = columns / N;
  Pack<T, N> held[kRows][kPacks];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int p = lane + i * kWarp;
      if (first + r < rows && p < packs) held[r][i] = load<N>(x + (first + r) * columns, p);
    }
  }
  float means[kRows];
  float scales[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (lane + i * kWarp >= packs) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) sum += to_float(held[r][i].at[j]);
    }
    means[r] = warp_sum(sum) / static_cast<float>(columns);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (lane + i * kWarp >= packs) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float off = to_float(held[r][i].at[j]) - means[r];
        squares = fmaf(off, off, squares);
      }
    }
    scales[r] = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(columns) + epsilon);
    if (lane == 0 && first + r < rows) {
      mean[first + r] = means[r];
      rstd[first + r] = scales[r];
    }
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kWarp;
    if (p >= packs) continue;
    float w[N];
    float b[N];
    load_floats(weight + p * N, w);
    load_floats(bias + p * N, b);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= rows) continue;
      Pack<T, N> result;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float normal = (to_float(held[r][i].at[j]) - means[r]) * scales[r];
        result.at[j] = from_float<T>(fmaf(normal, w[j], b[j]));
      }
      store(out + (first + r) * columns, p, result);
    }
  }
}

/// Any row: a block reads it three times, from the caches after the first.
template <class T>
__global__ void forward_any(const T* x, std::int64_t columns, const float* weight, const float* bias,
                            float epsilon, T* out, float* mean, float* rstd) {
  __shared__ float parts[kAnyThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const T* const in = x + row * columns;
  float sum = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kAnyThreads) sum += to_float(in[c]);
  const float middle = block_sum<kAnyThreads>(sum, parts) / static_cast<float>(columns);
  float squares = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kAnyThreads) {
    const float off = to_float(in[c]) - middle;
    squares = fmaf(off, off, squares);
  }
  const float variance = block_sum<kAnyThreads>(squares, parts) / static_cast<float>(columns);
  const float scale = 1.0f / sqrtf(variance + epsilon);
  for (std::int64_t c = threadIdx.x; c < columns; c += kAnyThreads)
    out[row * columns + c] = from_float<T>(fmaf((to_float(in[c]) - middle) * scale, weight[c], bias[c]));
  if (threadIdx.x == 0) {
    mean[row] = middle;
    rstd[row] = scale;
  }
}

/// Registers for the sums over rows grow with the packs of a lane; two blocks must fit a multiprocessor.
constexpr int backward_threads(int elements_of_lane) {
  return elements_of_lane <= 24 ? 256 : elements_of_lane <= 40 ? 192 : 128;
}

/// Adds the warps' sums in the order of the warps and writes them to this block's partials [2, columns].
template <int N, int kPacks>
__device__ void write_partials(const float (&dweight)[kPacks][N], const float (&dbias)[kPacks][N],
                               int columns, int warps, float* sums, float* partials) {
  const int lane = threadIdx.x % kWarp;
  for (int warp = 0; warp < warps; ++warp) {
    if (static_cast<int>(threadIdx.x) / kWarp == warp) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const int c = (lane + i * kWarp) * N;
        if (c >= columns) continue;
        float w[N] = {};
        float b[N] = {};
        if (warp > 0) {
          load_floats(sums + c, w);
          load_floats(sums + columns + c, b);
        }
#pragma unroll
        for (int j = 0; j < N; ++j) {
          w[j] += dweight[i][j];
          b[j] += dbias[i][j];
        }
        store_floats(sums + c, w);
        store_floats(sums + columns + c, b);
      }
    }
    __syncthreads();
  }
  for (int c = threadIdx.x; c < 2 * columns; c += blockDim.x)
    partials[std::int64_t{blockIdx.x} * 2 * columns + c] = sums[c];
}

/// A warp takes rows one after another and keeps its sums over rows in registers.
template <class T, int kPacks>
__global__ void __launch_bounds__(backward_threads(kPacks* kWide<T>), 2)
    backward_rows(const T* x, const T* d_out, const T* d_passed, std::int64_t rows, int columns,
                  const float* weight, const float* mean, const float* rstd, T* dx, float* partials) {
  extern __shared__ float4 shared[];
  constexpr int N = kWide<T>;
  constexpr int kWarps = backward_threads(kPacks * N) / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int packs = columns / N;
  float dweight[kPacks][N] = {};
  float dbias[kPacks][N] = {};
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; row < rows;
       row += std::int64_t{gridDim.x} * kWarps) {
    Pack<T, N> in[kPacks];
    Pack<T, N> gradient[kPacks];
    Pack<T, N> passed[kPacks];
    const std::int64_t start = row * columns;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int p = lane + i * kWarp;
      if (p >= packs) continue;
      in[i] = load<N>(x + start, p);
      gradient[i] = load<N>(d_out + start, p);
      if (d_passed != nullptr) passed[i] = load<N>(d_passed + start, p);
    }
    const float middle = mean[row];
    const float scale = rstd[row];
    float sum = 0;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int p = lane + i * kWarp;
      if (p >= packs) continue;
      float w[N];
      load_floats(weight + p * N, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = to_float(gradient[i].at[j]);
        const float normal = (to_float(in[i].at[j]) - middle) * scale;
        dweight[i][j] = fmaf(g, normal, dweight[i][j]);
        dbias[i][j] += g;
        sum = fmaf(g, w[j], sum);
        dot = fmaf(g * w[j], normal, dot);
      }
    }
    sum = warp_sum(sum) / static_cast<float>(columns);
    dot = warp_sum(dot) / static_cast<float>(columns);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int p = lane + i * kWarp;
      if (p >= packs) continue;
      float w[N];
      load_floats(weight + p * N, w);
      Pack<T, N> result;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float normal = (to_float(in[i].at[j]) - middle) * scale;
        const float through = (fmaf(to_float(gradient[i].at[j]), w[j], -sum) - normal * dot) * scale;
        const float beside = d_passed != nullptr ? to_float(passed[i].at[j]) : 0.0f;
        result.at[j] = from_float<T>(beside + through);
      }
      store(dx + start, p, result);
    }
  }
  write_partials<N, kPacks>(dweight, dbias, columns, kWarps, reinterpret_cast<float*>(shared), partials);
}

/// Any row: a block takes rows one after another; a thread owns columns, and their sums lie in the partials.
template <class T>
__global__ void backward_any(const T* x, const T* d_out, const T* d_passed, std::int64_t rows,
                             std::int64_t columns, const float* weight, const float* mean, const float* rstd,
                             T* dx, float* partials) {
  __shared__ float parts[kAnyThreads / kWarp];
  float* const dweight = partials + std::int64_t{blockIdx.x} * 2 * columns;
  float* const dbias = dweight + columns;
  for (std::int64_t c = threadIdx.x; c < columns; c += kAnyThreads) dweight[c] = dbias[c] = 0;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const in = x + row * columns;
    const T* const gradient = d_out + row * columns;
    float sum = 0;
    float dot = 0;
    for (std::int64_t c = threadIdx.x; c < columns; c += kAnyThreads) {
      const float g = to_float(gradient[c]);
      const float normal = (to_float(in[c]) - mean[row]) * rstd[row];
      dweight[c] = fmaf(g, normal, dweight[c]);
      dbias[c] += g;
      sum = fmaf(g, weight[c], sum);
      dot = fmaf(g * weight[c], normal, dot);
    }
    sum = block_sum<kAnyThreads>(sum, parts) / static_cast<float>(columns);
    dot = block_sum<kAnyThreads>(dot, parts) / static_cast<float>(columns);
    for (std::int64_t c = threadIdx.x; c < columns; c += kAnyThreads) {
      const float normal = (to_float(in[c]) - mean[row]) * rstd[row];
      const float through = (fmaf(to_float(gradient[c]), weight[c], -sum) - normal * dot) * rstd[row];
      const float beside = d_passed != nullptr ? to_float(d_passed[row * columns + c]) : 0.0f;
      dx[row * columns + c] = from_float<T>(beside + through);
    }
  }
}

constexpr int kColumnsOfBlock = kWarp;
constexpr int kGroups = 16;

/// Column c of the partials [blocks, 2, columns], added by kGroups threads and then in their order.
__global__ void add_partials(const float* partials, int blocks, std::int64_t columns, FloatGradient dweight,
                             FloatGradient dbias) {
  __shared__ float parts[kGroups][kColumnsOfBlock];
  const std::int64_t c = std::int64_t{blockIdx.x} * kColumnsOfBlock + threadIdx.x;
  float mine = 0;
  if (c < 2 * columns) {
#pragma unroll 8
    for (int block = threadIdx.y; block < blocks; block += kGroups)
      mine += partials[std::int64_t{block} * 2 * columns + c];
  }
  parts[threadIdx.y][threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.y != 0 || c >= 2 * columns) return;
  float sum = 0;
  for (int group = 0; group < kGroups; ++group) sum += parts[group][threadIdx.x];
  const FloatGradient target = c < columns ? dweight : dbias;
  if (target.data == nullptr) return;
  float& place = target.data[c < columns ? c : c - columns];
  place = target.add ? place + sum : sum;
}

/// Calls `body` with the packs of a lane as a constant; false where rows do not fit the kernels above.
template <class T, class Body>
bool with_packs(std::int64_t columns, Body body) {
  if (columns == 0 || columns % kWide<T> != 0) return false;
  const std::int64_t packs = (columns / kWide<T> + kWarp - 1) / kWarp;
  if (packs <= 1) return body(std::integral_constant<int, 1>()), true;
  if (packs <= 2) return body(std::integral_constant<int, 2>()), true;
  if (packs <= 3) return body(std::integral_constant<int, 3>()), true;
  if (packs <= 4) return body(std::integral_constant<int, 4>()), true;
  if (packs <= 5) return body(std::integral_constant<int, 5>()), true;
  if (packs <= 7) return body(std::integral_constant<int, 7>()), true;
  if (packs <= 8) return body(std::integral_constant<int, 8>()), true;
  if constexpr (sizeof(T) == 4) {
    if (packs <= 13) return body(std::integral_constant<int, 13>()), true;
  }
  return false;
}

/// Blocks of the backward pass, from the shape and the type alone.
unsigned backward_blocks(const Matrix& x) {
  std::int64_t rows_of_block = 1;
  with_floating(x.element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    with_packs<T>(x.columns, [&](auto packs) {
      rows_of_block = backward_threads(decltype(packs)::value * kWide<T>) / kWarp;
    });
  });
  return static_cast<unsigned>(std::min<std::int64_t>(blocks_for(x.rows, rows_of_block), kMostBlocks));
}

}  // namespace

void layer_norm_forward(const Matrix& x, const float* weight, const float* bias, float epsilon, void* out,
                        float* mean, float* rstd, cudaStream_t stream) {
  if (x.rows == 0) return;
  const bool aligned = is_aligned(x.data) && is_aligned(weight) && is_aligned(bias) && is_aligned(out);
  with_floating(x.element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto* const in = static_cast<const T*>(x.data);
    const bool done = aligned && with_packs<T>(x.columns, [&](auto packs) {
                        constexpr int kPacks = decltype(packs)::value;
                        constexpr int kRows = kPacks <= 5 ? 2 : 1;
                        forward_rows<T, kPacks, kRows>
                            <<<blocks_for(x.rows, kForwardWarps * kRows), kForwardWarps * kWarp, 0, stream>>>(
                                in, x.rows, static_cast<int>(x.columns), weight, bias, epsilon,
                                static_cast<T*>(out), mean, rstd);
                      });
    if (done) return;
    forward_any<<<blocks_for(x.rows, 1), kAnyThreads, 0, stream>>>(in, x.columns, weight, bias, epsilon,
                                                                   static_cast<T*>(out), mean, rstd);
  });
  cuda::check(cudaGetLastError(), "layer_norm_forward");
}

std::int64_t layer_norm_partials(const Matrix& x) {
  return backward_blocks(x) * 2 * x.columns;
}

void layer_norm_backward(const LayerNormSaved& saved, const void* d_out, const void* d_passed, void* dx,
                         float* partials, cudaStream_t stream) {
  const Matrix& x = saved.x;
  if (x.rows == 0) return;
  const unsigned blocks = backward_blocks(x);
  const bool aligned = is_aligned(x.data) && is_aligned(d_out) && is_aligned(d_passed) && is_aligned(dx) &&
                       is_aligned(saved.weight);
  with_floating(x.element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto* const in = static_cast<const T*>(x.data);
    const auto* const gradient = static_cast<const T*>(d_out);
    const auto* const passed = static_cast<const T*>(d_passed);
    const bool done =
        aligned && with_packs<T>(x.columns, [&](auto packs) {
          constexpr int kPacks = decltype(packs)::value;
          const auto shared_bytes = static_cast<std::size_t>(x.columns) * 2 * sizeof(float);
          backward_rows<T, kPacks><<<blocks, backward_threads(kPacks * kWide<T>), shared_bytes, stream>>>(
              in, gradient, passed, x.rows, static_cast<int>(x.columns), saved.weight, saved.mean, saved.rstd,
              static_cast<T*>(dx), partials);
        });
    if (done) return;
    backward_any<<<blocks, kAnyThreads, 0, stream>>>(in, gradient, passed, x.rows, x.columns, saved.weight,
                                                     saved.mean, saved.rstd, static_cast<T*>(dx), partials);
  });
  cuda::check(cudaGetLastError(), "layer_norm_backward");
}

void layer_norm_parameters(const Matrix& x, const float* partials, FloatGradient dweight, FloatGradient dbias,
                           cudaStream_t stream) {
  if (x.columns == 0) return;
  add_partials<<<blocks_for(2 * x.columns, kColumnsOfBlock), dim3(kColumnsOfBlock, kGroups), 0, stream>>>(
      partials, static_cast<int>(backward_blocks(x)), x.columns, dweight, dbias);
  cuda::check(cudaGetLastError(), "layer_norm_parameters");
}

}  // namespace lockstep::ops::cuda_kernels
