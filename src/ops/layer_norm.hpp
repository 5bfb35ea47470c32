#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// A normalised tensor, and what it was made from on its way past the layer.
struct Normalised {
  at::Tensor out;     ///< [rows, columns], the type of x
  at::Tensor passed;  ///< x itself, for the residual connection
};

/// Layer normalisation of each row (Ba, Kiros and Hinton 2016, equation 3): out = (x - mean) / sqrt(variance
/// + epsilon) * weight + bias, with the variance over `columns`; differentiable. `x` [rows, columns] half,
/// bfloat16 or float; `weight`, `bias` float [columns]. Statistics and sums are float. A residual connection
/// that adds to `passed` instead of x lets the backward pass form both gradients of x in one kernel, which
/// reads and writes each once; either result may be left unused. Gradients of `weight` and `bias` are added
/// into their `grad()` where it is there (GradientRange). Zero rows are allowed. Fused on CUDA, with the same
/// bits on every run; elsewhere the reference. Throws c10::Error for shapes and types that do not
/// fit.
Normalised layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);

namespace reference {
/// Also takes double throughout.
Normalised layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);
}  // namespace reference

}  // namespace lockstep::ops
