#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/error.hpp"
#include "optim/kernels.hpp"

namespace lockstep::optim::cuda_kernels {

namespace {

using precision::LowType;

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // elements a thread takes at once: 16-byte loads of float, 8-byte loads of half

struct AdamWCoefficients {
  float beta1;
  float beta2;
  float rest1;  // 1 - beta1, taken in double: 1 - 0.999f would be wrong in the fifth digit
  float rest2;
  float epsilon;
  float step_size;        // lr / (1 - beta1^t)
  float root_correction;  // 1 / sqrt(1 - beta2^t)
  float learning_rate;
};

struct Quad {
  float v[kWidth];
};

__device__ Quad load(const float* from) {
  const float4 pack = *reinterpret_cast<const float4*>(from);
  return {{pack.x, pack.y, pack.z, pack.w}};
}

__device__ void store(float* to, const Quad& quad) {
  *reinterpret_cast<float4*>(to) = make_float4(quad.v[0], quad.v[1], quad.v[2], quad.v[3]);
}

__device__ Quad load_low(const void* low, LowType type, std::int64_t i) {
  const uint2 pack = *reinterpret_cast<const uint2*>(static_cast<const std::uint16_t*>(low) + i);
  float2 first;
  float2 second;
  if (type == LowType::half) {
    first = __half22float2(*reinterpret_cast<const __half2*>(&pack.x));
    second = __half22float2(*reinterpret_cast<const __half2*>(&pack.y));
  } else {
    first = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pack.x));
    second = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pack.y));
  }
  return {{first.x, first.y, second.x, second.y}};
}

__device__ void store_low(void* low, LowType type, std::int64_t i, const Quad& quad) {
  uint2 pack;
  if (type == LowType::half) {
    *reinterpret_cast<__half2*>(&pack.x) = __floats2half2_rn(quad.v[0], quad.v[1]);
    *reinterpret_cast<__half2*>(&pack.y) = __floats2half2_rn(quad.v[2], quad.v[3]);
  } else {
    *reinterpret_cast<__nv_bfloat162*>(&pack.x) = __floats2bfloat162_rn(quad.v[0], quad.v[1]);
    *reinterpret_cast<__nv_bfloat162*>(&pack.y) = __floats2bfloat162_rn(quad.v[2], quad.v[3]);
  }
  *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(low) + i) = pack;
}

/// Gradients of four elements in true units. A chunk never straddles the low and the full part.
__device__ Quad load_gradients(const FlatArrays& arrays, std::int64_t i, float factor) {
  const auto& view = arrays.gradients;
  Quad quad =
      i < view.low_count ? load_low(view.low, view.low_type, i) : load(view.full + (i - view.low_count));
  for (float& gradient : quad.v) gradient *= factor;
  return quad;
}

__device__ void store_weights(const FlatArrays& arrays, std::int64_t i, const Quad& masters) {
  store(arrays.masters + i, masters);
  if (i < arrays.gradients.low_count) store_low(arrays.low_weights, arrays.gradients.low_type, i, masters);
}

/// Chunks start on multiples of four and their parameter's padding may be written: it stays zero, since its
/// gradient, master and moments are zero.
template <class Update>
__device__ void for_chunk(const FlatArrays& arrays, Update update) {
  const Chunk chunk = arrays.chunks[blockIdx.x];
  for (int at = threadIdx.x * kWidth; at < chunk.count; at += kThreads * kWidth) {
    update(chunk.begin + at, chunk.weight_decay);
  }
}

__global__ void __launch_bounds__(kThreads) adamw_kernel(FlatArrays arrays, AdamW rule) {
  const precision::StepState& state = *arrays.state;
  if (state.found_nonfinite) return;
  __shared__ AdamWCoefficients shared;
  if (threadIdx.x == 0) {
    const double t = static_cast<double>(state.applied_steps + 1);
    shared = {static_cast<float>(rule.beta1),
              static_cast<float>(rule.beta2),
              static_cast<float>(1 - rule.beta1),
              static_cast<float>(1 - rule.beta2),
              rule.epsilon,
              static_cast<float>(state.learning_rate / (1 - pow(rule.beta1, t))),
              static_cast<float>(1 / sqrt(1 - pow(rule.beta2, t))),
              state.learning_rate};
  }
  __syncthreads();
  const AdamWCoefficients c = shared;
  for_chunk(arrays, [&](std::int64_t i, float weight_decay) {
    const Quad gradients = load_gradients(arrays, i, state.gradient_factor);
    Quad masters = load(arrays.masters + i);
    Quad first = load(arrays.moments[0] + i);
    Quad second = load(arrays.moments[1] + i);
    for (int k = 0; k < kWidth; ++k) {
      const float g = gradients.v[k];
      first.v[k] = c.beta1 * first.v[k] + c.rest1 * g;
      second.v[k] = c.beta2 * second.v[k] + c.rest2 * g * g;
      masters.v[k] -= c.learning_rate * weight_decay * masters.v[k];
      masters.v[k] -= c.step_size * first.v[k] / (sqrtf(second.v[k]) * c.root_correction + c.epsilon);
    }
    store(arrays.moments[0] + i, first);
    store(arrays.moments[1] + i, second);
    store_weights(arrays, i, masters);
  });
}

__global__ void __launch_bounds__(kThreads) momentum_kernel(FlatArrays arrays, Momentum rule) {
  const precision::StepState& state = *arrays.state;
  if (state.found_nonfinite) return;
  for_chunk(arrays, [&](std::int64_t i, float weight_decay) {
    const Quad gradients = load_gradients(arrays, i, state.gradient_factor);
    Quad masters = load(arrays.masters + i);
    Quad velocity = load(arrays.moments[0] + i);
    for (int k = 0; k < kWidth; ++k) {
      velocity.v[k] = rule.momentum * velocity.v[k] + (gradients.v[k] + weight_decay * masters.v[k]);
      masters.v[k] -= state.learning_rate * velocity.v[k];
    }
    store(arrays.moments[0] + i, velocity);
    store_weights(arrays, i, masters);
  });
}

}  // namespace

void step(const FlatArrays& arrays, const AdamW& rule, cudaStream_t stream) {
  adamw_kernel<<<static_cast<int>(arrays.chunk_count), kThreads, 0, stream>>>(arrays, rule);
  cuda::check(cudaGetLastError(), "adamw_kernel");
}

void step(const FlatArrays& arrays, const Momentum& rule, cudaStream_t stream) {
  momentum_kernel<<<static_cast<int>(arrays.chunk_count), kThreads, 0, stream>>>(arrays, rule);
  cuda::check(cudaGetLastError(), "momentum_kernel");
}

}  // namespace lockstep::optim::cuda_kernels
