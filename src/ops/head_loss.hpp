#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

/// What the output head of a language model is given.
struct HeadInput {
  at::Tensor x;              ///< [rows, width]
  at::Tensor weight;         ///< [padded vocabulary, width]; tied to the embedding or not
  at::Tensor targets;        ///< int64 [rows], in [0, classes)
  std::int64_t classes = 0;  ///< columns of the vocabulary that exist; the others pad it
};

/// Sum over rows of -log softmax(x weight^T)[target] over the first `classes` columns, in float.
///
/// `loss_gradient`, a float scalar on the device, is the gradient that the backward pass will give this sum.
/// With it the fused form computes the loss and its gradients in one pass: logits exist for some thousand
/// rows at a time and are overwritten by their gradient, the weight's gradient is added to the trainer's flat
/// array, and the backward pass only hands on the gradient of `x`. It refuses to be given another gradient
/// then. Without it, or where the fused form is not used (kernel_choice.hpp), all logits exist at once; with
/// gradients off the fused form takes them part by part. Differentiable.
at::Tensor head_loss(const HeadInput& input, const at::Tensor& loss_gradient);

namespace reference {
at::Tensor head_loss(const HeadInput& input);
}  // namespace reference

}  // namespace lockstep::ops
