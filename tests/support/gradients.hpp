#pragma once

// Include after Torch.
#include <vector>

#include "precision/flat_parameters.hpp"

namespace lockstep::test {

/// The gradients as scaler and optimizer read them, widened, one tensor a parameter: reduced, still times the
/// loss scale. CPU ranks.
inline std::vector<at::Tensor> stored_gradients(const precision::FlatParameters& flat) {
  const auto view = flat.gradients();
  const auto type = view.low_type == precision::LowType::half ? at::kHalf : at::kBFloat16;
  const at::Tensor low = at::from_blob(const_cast<void*>(view.low), {view.low_count}, at::dtype(type));
  const at::Tensor full =
      at::from_blob(const_cast<float*>(view.full), {view.full_count}, at::dtype(at::kFloat));
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : flat.parameters()) {
    const bool is_low = parameter.begin < view.low_count;
    const at::Tensor& part = is_low ? low : full;
    const auto first = is_low ? parameter.begin : parameter.begin - view.low_count;
    gradients.push_back(part.narrow(0, first, parameter.count).to(at::kFloat, false, /*copy=*/true));
  }
  return gradients;
}

}  // namespace lockstep::test
