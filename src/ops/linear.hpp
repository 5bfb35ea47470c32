#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

// The linear layers of a transformer. Weights are [out, in], biases [out]. Fused (kernel_choice.hpp):
// cuBLASLt products in float, rounded once, with bias, residual connection and GELU inside; the gradients of
// bias and GELU take one kernel beside the products. On Hopper large products with bias or GELU take a kernel
// of our own, which rounds after each step, and the gradients of a weight and its bias another
// (product_beside.hpp). Weight gradients go straight into the trainer's flat array (gradient_range.hpp).
// Widths that are no multiple of 8 take the reference. Differentiable.

/// x weight^T + bias: [rows, in] to [rows, out].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// residual + x weight^T + bias; `residual` [rows, out].
at::Tensor linear_add(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& residual);

/// The two layers of a transformer's MLP.
struct MlpWeights {
  at::Tensor in_weight, in_bias;    ///< [hidden, width], [hidden]
  at::Tensor out_weight, out_bias;  ///< [width, hidden], [width]
};

/// residual + gelu(x in_weight^T + in_bias) out_weight^T + out_bias, GELU in its tanh form; [rows, width].
at::Tensor mlp_add(const at::Tensor& x, const MlpWeights& weights, const at::Tensor& residual);

namespace reference {
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor linear_add(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& residual);
at::Tensor mlp_add(const at::Tensor& x, const MlpWeights& weights, const at::Tensor& residual);
}  // namespace reference

}  // namespace lockstep::ops
