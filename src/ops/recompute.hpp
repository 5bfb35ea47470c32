#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace lockstep::ops {

/// body(x), keeping only `x` for the backward pass, which runs `body` again to get at what it needs (Chen et
/// al. 2016). `body` must compute the same each time; parameters that it uses get their gradients then, as
/// they would otherwise. Differentiable in `x`.
at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& body, const at::Tensor& x);

}  // namespace lockstep::ops
