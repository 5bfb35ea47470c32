#pragma once

#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include "cuda/matmul.hpp"

namespace lockstep::cuda {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t length = 0;
  std::int64_t heads = 0;
  std::int64_t head_width = 0;
  Number number = Number::float16;

  auto operator<=>(const AttentionShape&) const = default;
};

/// Causal scaled-dot-product attention through cuDNN, for one shape, forward and backward.
///
/// Queries, keys and values stay as the linear layer before wrote them: one matrix `qkv` [batch, length, 3,
/// heads, head_width]; `out` is [batch, length, heads, head_width]; `statistics`, what the backward pass
/// needs of the softmax, is float [batch, heads, length]. Scores are scaled by 1 / sqrt(head_width). The
/// backward pass adds in a fixed order, at the price of a workspace of 2 * batch * heads * length^2 bytes.
/// Can be captured.
class Attention {
 public:
  explicit Attention(const AttentionShape& shape);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// Builds both plans, which takes seconds; otherwise each is built where it is first needed. Throws
  /// ApiError("cuDNN", ...) for what the library does not support on this device, such as head widths that
  /// are no multiple of 8, or sequences of one token.
  void prepare();

  std::int64_t forward_workspace_bytes();
  std::int64_t backward_workspace_bytes();

  void forward(const void* qkv, void* out, float* statistics, void* workspace, cudaStream_t stream);
  void backward(const void* qkv, const void* out, const void* d_out, const float* statistics, void* d_qkv,
                void* workspace, cudaStream_t stream);

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace lockstep::cuda
