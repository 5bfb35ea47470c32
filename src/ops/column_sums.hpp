#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Sums over the rows of `matrix` [rows, columns], in float and in a fixed order: the gradient of a bias that
/// was added to every row. Written to `sums` [columns] of the same type, or added to what is there.
void column_sums(const at::Tensor& matrix, const at::Tensor& sums, bool adds);

/// The backward pass of GELU in its tanh form, in place: gradient *= gelu'(before), both [rows, columns]; and
/// the sums over rows of the result, as column_sums() gives them, from the same reading of memory.
void gelu_gradient(const at::Tensor& gradient, const at::Tensor& before, const at::Tensor& sums, bool adds);

namespace reference {
void column_sums(const at::Tensor& matrix, const at::Tensor& sums, bool adds);
void gelu_gradient(const at::Tensor& gradient, const at::Tensor& before, const at::Tensor& sums, bool adds);
}  // namespace reference

}  // namespace lockstep::ops
