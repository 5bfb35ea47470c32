#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

/// Sum over rows of -log softmax(logits)[target], in float whatever the type of the logits; differentiable.
/// `logits` [rows, columns] float, half or bfloat16, of which the first `classes` columns take part (-1:
/// all); `targets` [rows] int64 in [0, classes). Zero rows give 0. Fused on CUDA: one warp reads a row once
/// each way, sums are taken in a fixed order, and the gradient is formed with the device's own loss scale (it
/// arrives as the gradient of the result). Elsewhere the reference. A target outside the classes makes the
/// fused loss NaN and is an error in the reference.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, std::int64_t classes = -1);

/// Losses of all rows, and their gradient in place of the logits: losses[r] = -log
/// softmax(logits[r])[target], logits[r, c] = (softmax(logits[r])[c] - [c == target]) * seed, 0 from column
/// `classes` on. For an output layer, whose logits are the largest tensor of a step: they are read once and
/// written once. `logits` [rows, columns] half, bfloat16 or float, contiguous; `targets` int64 [rows]; `seed`
/// one float on the same device, such as loss scale / global count; `losses` float [rows], contiguous. Not
/// differentiable. A target outside the classes makes loss and gradients of its row NaN in the fused op (its
/// columns from `classes` on stay 0), so that the step is skipped, and is an error in the reference. A NaN
/// logit makes both NaN.
void cross_entropy_in_place(at::Tensor& logits, std::int64_t classes, const at::Tensor& targets,
                            const at::Tensor& seed, at::Tensor& losses);

/// The losses alone, float [rows], for evaluation; logits as above and left as they are. Not differentiable.
at::Tensor cross_entropy_losses(const at::Tensor& logits, std::int64_t classes, const at::Tensor& targets);

/// Sum of float [rows] as a float scalar, on CUDA in a fixed order. Not differentiable.
at::Tensor sum_losses(const at::Tensor& losses);

namespace reference {
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, std::int64_t classes = -1);
void cross_entropy_in_place(at::Tensor& logits, std::int64_t classes, const at::Tensor& targets,
                            const at::Tensor& seed, at::Tensor& losses);
at::Tensor cross_entropy_losses(const at::Tensor& logits, std::int64_t classes, const at::Tensor& targets);
}  // namespace reference

}  // namespace lockstep::ops
