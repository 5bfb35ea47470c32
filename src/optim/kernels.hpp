#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "precision/kernels.hpp"

/// One optimizer step over flat ranges: fused CUDA kernels (kernels.cu) and plain loops (reference.cpp).
///
/// Both read the gradient (half, bfloat16 or float), master and moments, and write master, moments and the
/// rounded weight: one pass, 28 bytes a parameter for AdamW in fp16. Both return at once when
/// state->found_nonfinite is set.
namespace lockstep::optim {

/// A piece of one parameter: what one block of a kernel works on.
struct Chunk {
  std::int64_t begin;  ///< in the flat space
  std::int32_t count;  ///< at most kChunk
  float weight_decay;
};
inline constexpr std::int32_t kChunk = 4096;

struct FlatArrays {
  const Chunk* chunks;  ///< [chunk_count], on the device of the arrays
  std::int64_t chunk_count;
  precision::GradientView gradients;
  float* masters;
  float* moments[2];
  void* low_weights;       ///< [low_count] half or bfloat16; null where there are none
  float* widened_weights;  ///< CPU ranks: float copy of low_weights; null on CUDA
  const precision::StepState* state;
};

/// AdamW (Loshchilov and Hutter 2019, algorithm 2, decoupled decay), bias-corrected by state->applied_steps
/// + 1.
struct AdamW {
  double beta1;
  double beta2;
  float epsilon;
};

/// SGD with momentum as PyTorch defines it: v = momentum v + g; w -= lr v; weight decay is added to the
/// gradient.
struct Momentum {
  float momentum;
};

namespace cuda_kernels {
void step(const FlatArrays& arrays, const AdamW& rule, cudaStream_t stream);
void step(const FlatArrays& arrays, const Momentum& rule, cudaStream_t stream);
}  // namespace cuda_kernels

namespace reference {
void step(const FlatArrays& arrays, const AdamW& rule);
void step(const FlatArrays& arrays, const Momentum& rule);
}  // namespace reference

}  // namespace lockstep::optim
