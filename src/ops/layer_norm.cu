#include "cuda/error.hpp"
#include "ops/layer_norm.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kForwardWarps = 4;
constexpr int kAnyThreads = 256;

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

}  // namespace lockstep::ops::cuda_kernels
