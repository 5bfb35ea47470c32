#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// Matrix products whose epilogue runs beside them, in a kernel for Hopper: cuBLASLt's epilogues of bias, GELU
// and GELU's derivative make a product wait (docs/adr/0011-products-beside-their-epilogues.md). All tensors
// are contiguous, of one type, half or bfloat16, on one device of compute capability 9.0, and begin at
// multiples of 16 bytes; widths are multiples of 8. The product is summed in float and rounded, and so is the
// result of each step of its epilogue, as by ops in a row. Not differentiable. The order of sums follows from
// the sizes. Throws c10::Error for shapes, types and addresses that do not fit.

/// Whether [rows, inner] x [inner, columns] on this tensor's device is to run here: compute capability 9.0, a
/// build for it, and a result of 2^23 elements at least, but not more than the kernel's indices hold.
bool runs_beside(const at::Tensor& left, std::int64_t columns);

/// out = x weight^T + bias: `x` [rows, in], `weight` [columns, in], `bias` [columns], `out` [rows, columns].
void product_bias(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& out);

/// hidden = GELU(x weight^T + bias) in its tanh form, and `slope` that of GELU there; the shapes of
/// product_bias, both results [rows, columns].
void product_bias_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& slope, const at::Tensor& hidden);

/// result = (left weight) * factor, and sums (+)= the sums over its rows, of the rounded elements: `left`
/// [rows, inner], `weight` [inner, columns], `factor` and `result` [rows, columns], `sums` [columns].
void product_times(const at::Tensor& left, const at::Tensor& weight, const at::Tensor& factor,
                   const at::Tensor& result, const at::Tensor& sums, bool adds);

/// Whether weight_gradient_beside() is to take [rows, out]^T x [rows, in] on this tensor's device: compute
/// capability 9.0, a build for it, 2^14 rows at least and a weight whose tiles are few beside them.
bool sums_beside(const at::Tensor& d_out, std::int64_t in);

/// d_weight (+)= d_out^T x, and d_bias (+)= the sums over rows of d_out, read once for both: `d_out` [rows,
/// out], `x` [rows, in], `d_weight` [out, in], `d_bias` [out]. Rounded once. The order of sums also depends
/// on the device's number of multiprocessors.
void weight_gradient_beside(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& d_weight,
                            bool adds, const at::Tensor& d_bias, bool adds_bias);

}  // namespace lockstep::ops
