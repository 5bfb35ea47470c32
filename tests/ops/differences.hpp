#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "support/catch.hpp"

namespace lockstep::test {

/// Checks the gradients that autograd gives `inputs` (double, CPU) for the scalar `f(inputs)` against central
/// differences.
inline void expect_slopes(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                          std::vector<at::Tensor> inputs) {
  for (auto& input : inputs) input = input.detach().clone().requires_grad_();
  f(inputs).backward();
  torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (auto& input : inputs) {
    const at::Tensor values = input.detach().view(-1);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const double there = values[i].item<double>();
      values[i] = there + kStep;
      const double up = f(inputs).item<double>();
      values[i] = there - kStep;
      const double down = f(inputs).item<double>();
      values[i] = there;
      const double slope = input.grad().view(-1)[i].item<double>();
      CHECK(slope == Approx((up - down) / (2 * kStep)).margin(1e-6).epsilon(1e-5));
    }
  }
}

/// Relative error of one rounding to `type`, and of the kernels' own float arithmetic.
inline double rounding(at::ScalarType type) {
  if (type == at::kHalf) return 6e-4;
  return type == at::kBFloat16 ? 4.5e-3 : 5e-6;
}

/// Whether every element is within `relative` of the expected one, or within `absolute`.
inline bool is_near(const at::Tensor& seen, const at::Tensor& expected, double relative, double absolute) {
  if (seen.sizes() != expected.sizes()) return false;
  const at::Tensor error = (seen.to(at::kDouble) - expected.to(at::kDouble)).abs();
  return (error <= expected.to(at::kDouble).abs() * relative + absolute).all().item<bool>();
}

}  // namespace lockstep::test
