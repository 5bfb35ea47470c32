#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Sum over rows of -log softmax(logits)[target], in float whatever the type of the logits; differentiable.
/// `logits` [rows, classes] float, half or bfloat16; `targets` [rows] int64 in [0, classes). Zero rows give
/// 0. Fused on CUDA: one warp reads a row once each way, sums are taken in a fixed order, and the gradient is
/// formed with the device's own loss scale (it arrives as the gradient of the result). Elsewhere the
/// reference. A target outside the classes makes the fused loss NaN and is an error in the reference.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

namespace reference {
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);
}  // namespace reference

}  // namespace lockstep::ops
