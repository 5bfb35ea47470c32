#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// out[b * T + t] = token_weight[tokens[b, t]] + position_weight[t], added in float and rounded once;
/// differentiable in both weights.
/// `tokens` int64 [B, T]; `token_weight` [vocabulary, C], `position_weight` [P, C] with P >= T, both half,
/// bfloat16 or float; out [B * T, C] of their type. The gradient of a weight is summed in float in a fixed
/// order and added, with one rounding, to the rows of `grad()` that occur, where it is there
/// (GradientRange): so a token weight may be tied to the output layer. A token outside the vocabulary makes
/// its row NaN, and has no gradient, in the fused op, and is an error in the reference. Fused on CUDA;
/// elsewhere the reference. Throws c10::Error for shapes and types that do not fit, and for 2^31 tokens.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& token_weight,
                     const at::Tensor& position_weight);

namespace reference {
/// Also takes double throughout.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& token_weight,
                     const at::Tensor& position_weight);
}  // namespace reference

}  // namespace lockstep::ops
