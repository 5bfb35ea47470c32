#include <cmath>

#include "base/half.hpp"
#include "precision/kernels.hpp"

namespace lockstep::precision::reference {

namespace {

float low_to_float(const void* low, LowType type, std::int64_t i) {
  const std::uint16_t bits = static_cast<const std::uint16_t*>(low)[i];
  return type == LowType::half ? half_to_float(bits) : bfloat16_to_float(bits);
}

}  // namespace

void begin_backward(StepState* state, const float* loss_sum, float global_count) {
  if (loss_sum != nullptr) state->loss_sum += *loss_sum;
  state->global_count = global_count;
  state->gradient_seed = state->loss_scale / global_count;
}

void inspect(const InspectArguments& arguments) {
  const auto& view = arguments.gradients;
  double squares = 0;
  bool nonfinite = false;
  const auto add = [&](float gradient) {
    nonfinite |= !std::isfinite(gradient);
    squares += static_cast<double>(gradient) * gradient;
  };
  for (std::int64_t i = 0; i < view.low_count; ++i) add(low_to_float(view.low, view.low_type, i));
  for (std::int64_t i = 0; i < view.full_count; ++i) add(view.full[i]);
  conclude_gradients(*arguments.state, std::sqrt(squares), nonfinite, arguments.clip_norm,
                     arguments.learning_rates, arguments.table_size);
}

void end_step(StepState* state, const ScaleRule& rule) {
  precision::end_step(*state, rule);
}

void round_weights(void* weights, LowType type, const float* masters, std::int64_t count) {
  auto* const bits = static_cast<std::uint16_t*>(weights);
  if (type == LowType::half) {
    float_to_half(masters, bits, count);
  } else {
    float_to_bfloat16(masters, bits, count);
  }
}

void widen(float* out, const void* low, LowType type, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = low_to_float(low, type, i);
}

}  // namespace lockstep::precision::reference
