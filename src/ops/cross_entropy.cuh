#pragma once

#include "ops/device.cuh"

/// Softmax of a row in one reading, in powers of two: exp(x - largest) is 2^(x log2 e - base), one
/// multiply-add and one instruction of the special unit. `base` is rounded, but it is the same one for every
/// column and for the sum, so its error cancels, also where logits are large.
namespace lockstep::ops::cuda_kernels {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Base and sum of 2^(x log2 e - base) over columns, merged as the reading goes (Milakov and Gimelshein
/// 2018). A NaN is dropped from the base and kept by the sum.
struct Running {
  float base = -INFINITY;
  float sum = 0;

  /// The base as it may be subtracted: -inf - -inf would be NaN.
  __device__ float finite_base() const { return base == -INFINITY ? 0.0f : base; }

  __device__ void merge(float other_base, float other_sum) {
    const float old = base;
    base = fmaxf(old, other_base);
    const float from = finite_base();
    sum = sum * power_of_two(old - from) + other_sum * power_of_two(other_base - from);
  }

  template <int N>
  __device__ void add(const float (&x)[N]) {
    float largest = x[0];
#pragma unroll
    for (int j = 1; j < N; ++j) largest = fmaxf(largest, x[j]);
    largest *= kLog2E;
    if (largest > base) {
      sum *= power_of_two(base - largest);
      base = largest;
    }
    const float from = finite_base();
#pragma unroll
    for (int j = 0; j < N; ++j) sum += power_of_two(fmaf(x[j], kLog2E, -from));
  }

  /// The same result in every lane.
  __device__ void merge_warp() {
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      merge(__shfl_xor_sync(kAllLanes, base, offset), __shfl_xor_sync(kAllLanes, sum, offset));
  }
};

/// A pack as floats; columns from `classes` on are -inf, which no sum sees.
template <class T, int N, class Index>
__device__ inline void unpack(const Pack<T, N>& pack, Index column, Index classes, float (&x)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = to_float(pack.at[j]);
  if (column + N <= classes) return;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (column + j >= classes) x[j] = -INFINITY;
  }
}

/// -log softmax of a logit. The base is taken off first: beside it the logarithm may have no digit left.
__device__ inline float loss_of(const Running& row, float picked) {
  return kLn2 * (log2f(row.sum) - fmaf(picked, kLog2E, -row.base));
}

/// Gradients of a pack with probabilities 2^(x log2 e - from) * factor.
template <class T, int N, class Index>
__device__ inline Pack<T, N> gradient_pack(const float (&x)[N], Index column, Index classes, Index target,
                                           float from, float factor, float seed) {
  float gradient[N];
#pragma unroll
  for (int j = 0; j < N; ++j) gradient[j] = power_of_two(fmaf(x[j], kLog2E, -from)) * factor;
  if (target >= column && target < column + N) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (column + j == target) gradient[j] -= seed;
    }
  }
  if (column + N > classes) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (column + j >= classes) gradient[j] = 0;  // also where the row is NaN
    }
  }
  Pack<T, N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) result.at[j] = from_float<T>(gradient[j]);
  return result;
}

}  // namespace lockstep::ops::cuda_kernels
