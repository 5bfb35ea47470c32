#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "precision/step_state.hpp"

/// The arithmetic of the loss scaler on raw memory, once as CUDA kernels (kernels.cu) and once as plain loops
/// (reference.cpp). Both orders of summation are fixed. `Low` arrays hold half or bfloat16 bits.
namespace lockstep::precision {

enum class LowType { none, half, bfloat16 };

/// The flat gradients of a rank: `low` of `low_count` elements of `low_type`, then `full` of `full_count`
/// floats.
struct GradientView {
  const void* low;
  LowType low_type;
  std::int64_t low_count;
  const float* full;
  std::int64_t full_count;
};

inline constexpr int kPartials =
    1024;  ///< at most this many blocks sum squares; one more pass adds their sums

struct InspectArguments {
  GradientView gradients;
  double* partial_sums;         ///< [kPartials]
  std::int32_t* partial_flags;  ///< [kPartials]
  StepState* state;
  float clip_norm;              ///< 0: no clipping
  const float* learning_rates;  ///< [table_size], by applied step
  std::int64_t table_size;
};

namespace cuda_kernels {
/// gradient_seed = loss_scale / global_count; adds `*loss_sum` to the step's loss unless the pointer is null.
void begin_backward(StepState* state, const float* loss_sum, float global_count, cudaStream_t stream);
void inspect(const InspectArguments& arguments, cudaStream_t stream);
void end_step(StepState* state, const ScaleRule& rule, cudaStream_t stream);
/// weights[i] = round_to_nearest_even(masters[i])
void round_weights(void* weights, LowType type, const float* masters, std::int64_t count,
                   cudaStream_t stream);
}  // namespace cuda_kernels

namespace reference {
void begin_backward(StepState* state, const float* loss_sum, float global_count);
void inspect(const InspectArguments& arguments);
void end_step(StepState* state, const ScaleRule& rule);
void round_weights(void* weights, LowType type, const float* masters, std::int64_t count);
void widen(float* out, const void* low, LowType type, std::int64_t count);
}  // namespace reference

}  // namespace lockstep::precision
