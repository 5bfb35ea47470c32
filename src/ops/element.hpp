#pragma once

#include <ATen/core/Tensor.h>

#include "ops/kernels.hpp"

namespace lockstep::ops {

/// The kernels' name of a tensor's type; throws c10::Error for one that no kernel takes.
Element element_of(const at::Tensor& tensor);

}  // namespace lockstep::ops
