#pragma once
#include <ATen/core/Tensor.h>
namespace lockstep::ops {
struct Normalised { at::Tensor out; at::Tensor passed; };
Normalised layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);
}
