#include <algorithm>

#include "cuda/error.hpp"
#include "ops/layer_norm.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kAnyThreads = 256;
constexpr int kPlaces =
    6;  // rows of a warp in shared memory: x, d_out and d_passed of this row and of the next
/// Of the backward pass: two for each of an H200's 132 multiprocessors, and the same number on every
/// other card, so that the order of the sums over rows does not depend on the card.
constexpr std::int64_t kMostBlocks = 264;

/// Registers for the sums over rows grow with the packs of a lane; two blocks must fit a multiprocessor.
constexpr int backward_threads(int elements_of_lane) {
  if (elements_of_lane <= 32) return 256;
  if (elements_of_lane <= 40) return 192;
  return elements_of_lane <= 56 ? 160 : 128;
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

/// One row's inputs on their way to a warp: x, d_out and d_passed of `columns` each. A lane copies and reads
/// the same packs, so it waits for its own copies alone.
template <class T, int kPacks>
__device__ void ask_for_row(T* place, const T* x, const T* d_out, const T* d_passed, std::int64_t row,
                            int columns) {
  constexpr int N = kWide<T>;
  const std::int64_t start = row * columns;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int c = (static_cast<int>(threadIdx.x) % kWarp + i * kWarp) * N;
    if (c >= columns) continue;
    copy_16_bytes(place + c, x + start + c);
    copy_16_bytes(place + columns + c, d_out + start + c);
    if (d_passed != nullptr) copy_16_bytes(place + 2 * columns + c, d_passed + start + c);
  }
}

/// Adds a row to the warp's sums over rows, and returns the row's means of d_out * weight, and of that times
/// the normalised x.
template <class T, int kPacks>
__device__ float2 add_row(const T* place, int columns, const float* weight, float middle, float scale,
                          float (&dweight)[kPacks][kWide<T>], float (&dbias)[kPacks][kWide<T>]) {
  constexpr int N = kWide<T>;
  float sum = 0;
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int c = (static_cast<int>(threadIdx.x) % kWarp + i * kWarp) * N;
    if (c >= columns) continue;
    const Pack<T, N> in = load<N>(place + c, 0);
    const Pack<T, N> gradient = load<N>(place + columns + c, 0);
    float w[N];
    load_floats(weight + c, w);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g = to_float(gradient.at[j]);
      const float normal = (to_float(in.at[j]) - middle) * scale;
      dweight[i][j] = fmaf(g, normal, dweight[i][j]);
      dbias[i][j] += g;
      sum = fmaf(g, w[j], sum);
      dot = fmaf(g * w[j], normal, dot);
    }
  }
  return make_float2(warp_sum(sum) / static_cast<float>(columns),
                     warp_sum(dot) / static_cast<float>(columns));
}

/// A warp takes rows one after another, the next one's inputs under way meanwhile, and keeps its sums over
/// rows in registers.
template <class T, int kPacks>
__global__ void __launch_bounds__(backward_threads(kPacks* kWide<T>), 2)
    backward_rows(const T* x, const T* d_out, const T* d_passed, std::int64_t rows, int columns,
                  const float* weight, const float* mean, const float* rstd, T* dx, float* partials) {
  extern __shared__ float4 shared[];
  constexpr int N = kWide<T>;
  constexpr int kWarps = backward_threads(kPacks * N) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  T* const places = reinterpret_cast<T*>(shared) + warp * kPlaces * columns;
  float dweight[kPacks][N] = {};
  float dbias[kPacks][N] = {};
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
  std::int64_t row = std::int64_t{blockIdx.x} * kWarps + warp;
  float next_mean = 0;
  float next_rstd = 0;
  const auto ask = [&](std::int64_t wanted, int turn) {
    if (wanted < rows) {
      ask_for_row<T, kPacks>(places + turn * 3 * columns, x, d_out, d_passed, wanted, columns);
      next_mean = mean[wanted];
      next_rstd = rstd[wanted];
    }
    end_copies();
  };
  ask(row, 0);
  for (int turn = 0; row < rows; row += step, turn ^= 1) {
    const float middle = next_mean;
    const float scale = next_rstd;
    ask(row + step, turn ^ 1);
    wait_for_copies<1>();
    const T* const place = places + turn * 3 * columns;
    const float2 means = add_row<T, kPacks>(place, columns, weight, middle, scale, dweight, dbias);
    const float shift = -scale * means.x;
    const float slope = -scale * scale * means.y;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int c = (static_cast<int>(threadIdx.x) % kWarp + i * kWarp) * N;
      if (c >= columns) continue;
      const Pack<T, N> in = load<N>(place + c, 0);
      const Pack<T, N> gradient = load<N>(place + columns + c, 0);
      Pack<T, N> passed{};
      if (d_passed != nullptr) passed = load<N>(place + 2 * columns + c, 0);
      float w[N];
      load_floats(weight + c, w);
      Pack<T, N> result;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float through = fmaf(to_float(gradient.at[j]) * w[j], scale, shift);
        const float beside = d_passed != nullptr ? to_float(passed.at[j]) : 0.0f;
        result.at[j] = from_float<T>(fmaf(to_float(in.at[j]) - middle, slope, through + beside));
      }
      store(dx + row * columns + c, 0, result);
    }
  }
  wait_for_copies<0>();  // the last group is empty: nothing to wait for, but checkers count it
  __syncthreads();       // the rows' places become those of the sums
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
    bool done = false;
    const auto launch = [&](auto packs) {
      constexpr int kPacks = decltype(packs)::value;
      constexpr int kThreads = backward_threads(kPacks * kWide<T>);
      const auto shared_bytes = static_cast<int>(x.columns * (kThreads / kWarp) * kPlaces * sizeof(T));
      if (shared_bytes > device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return;
      cuda::check(cudaFuncSetAttribute(backward_rows<T, kPacks>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       shared_bytes),
                  "cudaFuncSetAttribute");
      backward_rows<T, kPacks><<<blocks, kThreads, shared_bytes, stream>>>(
          in, gradient, passed, x.rows, static_cast<int>(x.columns), saved.weight, saved.mean, saved.rstd,
          static_cast<T*>(dx), partials);
      done = true;
    };
    if (aligned) with_packs<T>(x.columns, launch);
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
