#pragma once

#include <ATen/core/Tensor.h>

#include "cuda/attention.hpp"
#include "cuda/matmul.hpp"

namespace lockstep::ops {

/// The matrix products of this process, which drives one device. Never destroyed: at the process's end the
/// CUDA context may be gone first.
cuda::Matmul& matmul();

/// The attention plans of one shape; builds them at its first use, which takes seconds.
cuda::Attention& attention_plan(const cuda::AttentionShape& shape);

/// Whether cuDNN has a forward and a backward pass for this shape on this device. Builds them.
bool attention_supported(const cuda::AttentionShape& shape);

/// The cuda room's name of a tensor's type; half or bfloat16 only.
cuda::Number number_of(const at::Tensor& tensor);

/// out [rows, columns] = left x right through cuBLASLt on the current stream. Left is [rows, inner] or, as
/// `left_transposed` says, stored [inner, rows]; right likewise. `added`, `bias` and `auxiliary` as
/// cuda::MatmulOperands has them. All contiguous.
struct Product {
  at::Tensor left;
  bool left_transposed = false;
  at::Tensor right;
  bool right_transposed = false;
  cuda::Epilogue epilogue = cuda::Epilogue::none;
  at::Tensor added = {};
  at::Tensor bias = {};
  at::Tensor auxiliary = {};
};
void multiply(const Product& product, const at::Tensor& out);

}  // namespace lockstep::ops
