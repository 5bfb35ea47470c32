#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

/// Causal multi-head attention. `qkv` [sequences * length, 3 * width]: queries, keys and values of all heads
/// side by side, as one linear layer wrote them; returns [sequences * length, width]. Scores are scaled by 1
/// / sqrt(width / heads), the softmax is in float. Fused (kernel_choice.hpp): cuDNN on the packed matrix,
/// without transposing it, with a deterministic backward pass; what cuDNN does not support, such as head
/// widths that are no multiple of 8, takes the reference. Differentiable.
at::Tensor attention(const at::Tensor& qkv, std::int64_t sequences, std::int64_t heads);

/// Attention of tokens whose earlier ones are done: `qkv` [t, 3 * width] of the tokens that come after the
/// first `before` of one sequence; `kept` [2, heads, capacity, width / heads], of its type, holds keys and
/// values of those, and then of the new ones as well. Returns [t, width]. Plain ATen on every device; not
/// differentiable. Throws c10::Error where `kept` has no place for t more.
at::Tensor attention_after(const at::Tensor& qkv, const at::Tensor& kept, std::int64_t before);

namespace reference {
at::Tensor attention(const at::Tensor& qkv, std::int64_t sequences, std::int64_t heads);
}  // namespace reference

}  // namespace lockstep::ops
