#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "ops/kernels.hpp"

namespace lockstep::ops::cuda_kernels {

/// d_weight [out, in] (+)= d_out [rows, out]^T x [rows, in], and d_bias [out] (+)= the sums over rows of
/// d_out; all row-major, contiguous, of half or bfloat16 and aligned to 16 bytes. Summed in float, rounded
/// once.
struct HopperWeightGradient {
  Element element;
  std::int64_t rows, out, in;  ///< rows at least 1; out and in multiples of 8
  const void* d_out;
  const void* x;
  void* d_weight;
  bool adds;     ///< to what `d_weight` holds
  void* d_bias;  ///< may be null: none wanted
  bool adds_bias;
  float* work;  ///< room for hopper_weight_gradient_work() floats, aligned to 16 bytes
};

/// Of the calling thread's device.
std::int64_t hopper_weight_gradient_work(std::int64_t rows, std::int64_t out, std::int64_t in);

/// On a device of compute capability 9.0 only. Only enqueues, and can be captured. The order of sums follows
/// from the sizes and the device's number of multiprocessors.
void hopper_weight_gradient(const HopperWeightGradient& gradient, cudaStream_t stream);

}  // namespace lockstep::ops::cuda_kernels
