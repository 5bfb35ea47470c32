#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Matrix products whose epilogue runs beside them, in a kernel for Hopper: cuBLASLt's epilogues of bias,
/// GELU and GELU's derivative make a product wait (perf/README.md). Not differentiable; all tensors
/// contiguous matrices of half or bfloat16, widths multiples of 8. The product is rounded once before its
/// epilogue, as two ops in a row would.

/// Whether [rows, inner] x [inner, columns] on this tensor's device is to run here: compute capability 9.0, a
/// build for it, and enough rows to fill the device.
bool runs_beside(const at::Tensor& left, std::int64_t columns);

/// out = x weight^T + bias.
void product_bias(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& out);

/// hidden = GELU(x weight^T + bias) in its tanh form, and the slope of GELU there.
void product_bias_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& slope, const at::Tensor& hidden);

/// result = (left weight) * factor, and sums (+)= its sums over rows, in a fixed order.
void product_times(const at::Tensor& left, const at::Tensor& weight, const at::Tensor& factor,
                   const at::Tensor& result, const at::Tensor& sums, bool adds);

}  // namespace lockstep::ops
