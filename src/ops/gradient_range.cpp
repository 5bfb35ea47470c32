#include "ops/gradient_range.hpp"

#include <torch/torch.h>

namespace lockstep::ops {

GradientRange::GradientRange(const at::Tensor& parameter)
    : needed_(parameter.defined() && parameter.requires_grad()) {
  if (!needed_) return;
  if (parameter.is_leaf()) {  // grad() of any other tensor warns
    const at::Tensor& there = parameter.grad();
    direct_ = there.defined() && there.is_contiguous() && there.sizes() == parameter.sizes() &&
              there.scalar_type() == parameter.scalar_type() && there.device() == parameter.device();
    if (direct_) target_ = there;
  }
  if (!direct_) target_ = at::empty(parameter.sizes(), parameter.options().requires_grad(false));
}

}  // namespace lockstep::ops
