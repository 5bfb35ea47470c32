#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Where a fused op's backward pass writes the gradient of a parameter.
///
/// A parameter whose `grad()` is already there, contiguous, of its shape and type (the trainer's flat array),
/// has its gradient added there by the kernel itself, and autograd gets an undefined gradient: the array is
/// read and written once, and no tensor of the weight's size is made. Autograd still runs the post hooks of
/// the parameter's AccumulateGrad node, which is how the reducer learns that the parameter is ready. Any
/// other parameter, or one that is no leaf, gets a tensor of its own that autograd adds as usual.
///
/// Made in the backward pass, from the saved parameter. So torch::autograd::grad() of such an op adds into
/// `grad()` of parameters that have one. Local.
class GradientRange {
 public:
  /// `parameter` undefined or without requires_grad: nothing is needed and `target()` may not be called.
  explicit GradientRange(const at::Tensor& parameter);

  bool needed() const { return needed_; }

  /// Whether the kernel adds to what is there; else it must write every element.
  bool direct() const { return direct_; }

  /// Contiguous, in the parameter's shape and type, on its device. Not initialised unless `direct()`.
  const at::Tensor& target() const { return target_; }

  /// What the backward pass returns for this parameter: undefined where `direct()`, else `target()`.
  at::Tensor result() const { return direct_ ? at::Tensor() : target_; }

 private:
  bool needed_ = false;
  bool direct_ = false;
  at::Tensor target_;
};

}  // namespace lockstep::ops
