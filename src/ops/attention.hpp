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

namespace reference {
at::Tensor attention(const at::Tensor& qkv, std::int64_t sequences, std::int64_t heads);
}  // namespace reference

}  // namespace lockstep::ops
