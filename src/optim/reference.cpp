#include <cmath>

#include "base/half.hpp"
#include "optim/kernels.hpp"

namespace lockstep::optim::reference {

namespace {

using precision::LowType;

float gradient_at(const FlatArrays& arrays, std::int64_t i) {
  const auto& view = arrays.gradients;
  if (i >= view.low_count) return view.full[i - view.low_count];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(view.low)[i];
  return view.low_type == LowType::half ? half_to_float(bits) : bfloat16_to_float(bits);
}

void store_weight(const FlatArrays& arrays, std::int64_t i) {
  const auto& view = arrays.gradients;
  if (i >= view.low_count) return;
  auto* const bits = static_cast<std::uint16_t*>(arrays.low_weights) + i;
  *bits = view.low_type == LowType::half ? float_to_half(arrays.masters[i])
                                         : float_to_bfloat16(arrays.masters[i]);
  arrays.widened_weights[i] =
      view.low_type == LowType::half ? half_to_float(*bits) : bfloat16_to_float(*bits);
}

template <class Update>
void for_each_element(const FlatArrays& arrays, Update update) {
  if (arrays.state->found_nonfinite) return;
  for (std::int64_t chunk = 0; chunk < arrays.chunk_count; ++chunk) {
    const Chunk& piece = arrays.chunks[chunk];
    for (std::int64_t i = piece.begin; i < piece.begin + piece.count; ++i) {
      update(i, gradient_at(arrays, i) * arrays.state->gradient_factor, piece.weight_decay);
      store_weight(arrays, i);
    }
  }
}

}  // namespace

void step(const FlatArrays& arrays, const AdamW& rule) {
  const double t = static_cast<double>(arrays.state->applied_steps + 1);
  const float learning_rate = arrays.state->learning_rate;
  const auto step_size = static_cast<float>(learning_rate / (1 - std::pow(rule.beta1, t)));
  const auto root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(rule.beta2, t)));
  const auto beta1 = static_cast<float>(rule.beta1);
  const auto beta2 = static_cast<float>(rule.beta2);
  const auto rest1 = static_cast<float>(1 - rule.beta1);  // 1 - 0.999f would be wrong in the fifth digit
  const auto rest2 = static_cast<float>(1 - rule.beta2);
  for_each_element(arrays, [&](std::int64_t i, float gradient, float weight_decay) {
    float& master = arrays.masters[i];
    float& first = arrays.moments[0][i];
    float& second = arrays.moments[1][i];
    first = beta1 * first + rest1 * gradient;
    second = beta2 * second + rest2 * gradient * gradient;
    master -= learning_rate * weight_decay * master;
    master -= step_size * first / (std::sqrt(second) * root_correction + rule.epsilon);
  });
}

void step(const FlatArrays& arrays, const Momentum& rule) {
  for_each_element(arrays, [&](std::int64_t i, float gradient, float weight_decay) {
    float& master = arrays.masters[i];
    float& velocity = arrays.moments[0][i];
    velocity = rule.momentum * velocity + (gradient + weight_decay * master);
    master -= arrays.state->learning_rate * velocity;
  });
}

}  // namespace lockstep::optim::reference
