#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Sums over the rows of `matrix` [rows, columns], in float and in a fixed order: the gradient of a bias that was
/// added to every row. Written to `sums` [columns] of the same type, or added to what is there.
void column_sums(const at::Tensor& matrix, const at::Tensor& sums, bool adds);

namespace reference {
void column_sums(const at::Tensor& matrix, const at::Tensor& sums, bool adds);
}  // namespace reference

}  // namespace lockstep::ops
