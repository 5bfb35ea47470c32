#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/error.hpp"
#include "ops/kernels.hpp"

/// What the kernels of this room share: conversions, 16-byte accesses, sums in a fixed order.
namespace lockstep::ops::cuda_kernels {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__half value) {
  return __half2float(value);
}
__device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float to_float(std::uint8_t value) {
  return static_cast<float>(value);
}

template <class T>
__device__ inline T from_float(float value) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

/// N neighbours, read and written by one instruction.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

/// Elements of a 16-byte access.
template <class T>
constexpr int kWide = static_cast<int>(16 / sizeof(T));

template <int N, class T>
__device__ inline Pack<T, N> load(const T* data, std::int64_t pack) {
  return reinterpret_cast<const Pack<T, N>*>(data)[pack];
}
template <class T, int N>
__device__ inline void store(T* data, std::int64_t pack, const Pack<T, N>& value) {
  reinterpret_cast<Pack<T, N>*>(data)[pack] = value;
}

/// N floats from 16-byte aligned memory, 16 bytes at a time.
template <int N>
__device__ inline void load_floats(const float* data, float (&values)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const float4 four = reinterpret_cast<const float4*>(data)[i];
      values[4 * i] = four.x;
      values[4 * i + 1] = four.y;
      values[4 * i + 2] = four.z;
      values[4 * i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = data[i];
  }
}
template <int N>
__device__ inline void store_floats(float* data, const float (&values)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      reinterpret_cast<float4*>(data)[i] =
          make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) data[i] = values[i];
  }
}

/// 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): what GELU in its tanh form multiplies x by
/// (Hendrycks and Gimpel 2016). The quick exponential and division are good to some 1e-6 here, far within a
/// half; at their ends they give 0 and infinity.
__device__ inline float gelu_gate(float x) {
  constexpr float kRoot = -2.0f * 0.7978845608028654f * 1.4426950408889634f;  // in powers of two
  constexpr float kCube = kRoot * 0.044715f;
  float power;
  float gate;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * fmaf(kCube, x * x, kRoot)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(gate) : "f"(1.0f + power));
  return gate;
}
/// The derivative of x * gate.
__device__ inline float gelu_slope(float x, float gate) {
  constexpr float kRoot = 2.0f * 0.7978845608028654f;
  constexpr float kCube = 3.0f * kRoot * 0.044715f;
  return fmaf(x * gate * (1.0f - gate), fmaf(kCube, x * x, kRoot), gate);
}

/// The same sum in every lane.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

/// The same sum in every thread of a block of kThreads; `parts` is shared, one float a warp.
template <int kThreads>
__device__ inline float block_sum(float value, float* parts) {
  value = warp_sum(value);
  __syncthreads();  // an earlier sum may still be read
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / kWarp; ++warp) sum += parts[warp];
  return sum;
}

/// Asynchronous copy to shared memory; both sides 16-byte aligned. Visible to this thread after a wait.
__device__ inline void copy_16_bytes(void* shared, const void* global) {
  const auto place = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(global) : "memory");
}
/// Closes a group of this thread's copies.
__device__ inline void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Until all of this thread's groups but the latest kPending are there.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

inline unsigned blocks_for(std::int64_t elements, std::int64_t per_block) {
  return static_cast<unsigned>((elements + per_block - 1) / per_block);
}

/// Of the calling thread's device.
inline int device_attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  cuda::check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

inline bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

inline std::int64_t bytes_of(Element element) {
  return element == Element::float32 ? 4 : element == Element::uint8 ? 1 : 2;
}

/// Calls `body` with a null pointer of the element's type.
template <class Body>
void with_floating(Element element, Body body) {
  if (element == Element::float32) return body(static_cast<float*>(nullptr));
  if (element == Element::float16) return body(static_cast<__half*>(nullptr));
  return body(static_cast<__nv_bfloat16*>(nullptr));
}

}  // namespace lockstep::ops::cuda_kernels
