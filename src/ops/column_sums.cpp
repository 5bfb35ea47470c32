#include "ops/column_sums.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "ops/element.hpp"
#include "ops/kernels.hpp"

namespace lockstep::ops {

namespace {

void check(const at::Tensor& matrix, const at::Tensor& sums) {
  TORCH_CHECK(matrix.dim() == 2 && matrix.is_contiguous() && sums.is_contiguous() &&
                  sums.numel() == matrix.size(1) && sums.scalar_type() == matrix.scalar_type(),
              "sums over rows of ", matrix.sizes(), " do not fit ", sums.sizes());
}

/// Calls launch(arguments, stream) with room for partial sums.
template <class Launch>
void with_arguments(const at::Tensor& matrix, const at::Tensor& sums, bool adds, Launch launch) {
  const std::int64_t blocks = cuda_kernels::row_blocks(matrix.size(0));
  const at::Tensor partial = at::empty({blocks, matrix.size(1)}, matrix.options().dtype(at::kFloat));
  launch(cuda_kernels::ColumnSums{element_of(matrix), matrix.size(0), matrix.size(1),
                                  partial.data_ptr<float>(), sums.data_ptr(), adds},
         c10::cuda::getCurrentCUDAStream().stream());
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

void deliver(const at::Tensor& values, const at::Tensor& sums, bool adds) {
  const at::Tensor sum = values.sum(0);
  sums.copy_(adds ? wide(sums) + sum : sum);
}

}  // namespace

void column_sums(const at::Tensor& matrix, const at::Tensor& sums, bool adds) {
  check(matrix, sums);
  if (!matrix.is_cuda()) return reference::column_sums(matrix, sums, adds);
  with_arguments(matrix, sums, adds, [&](const auto& arguments, auto stream) {
    cuda_kernels::column_sums(arguments, matrix.const_data_ptr(), stream);
  });
}

void gelu_gradient(const at::Tensor& gradient, const at::Tensor& before, const at::Tensor& sums, bool adds) {
  check(gradient, sums);
  TORCH_CHECK(before.is_contiguous() && before.sizes() == gradient.sizes() &&
                  before.scalar_type() == gradient.scalar_type(),
              "gelu_gradient: gradient ", gradient.sizes(), " and input ", before.sizes(), " differ");
  if (!gradient.is_cuda()) return reference::gelu_gradient(gradient, before, sums, adds);
  with_arguments(gradient, sums, adds, [&](const auto& arguments, auto stream) {
    cuda_kernels::gelu_gradient(arguments, gradient.data_ptr(), before.const_data_ptr(), stream);
  });
}

void reference::column_sums(const at::Tensor& matrix, const at::Tensor& sums, bool adds) {
  deliver(wide(matrix), sums, adds);
}

void reference::gelu_gradient(const at::Tensor& gradient, const at::Tensor& before, const at::Tensor& sums,
                              bool adds) {
  const at::Tensor result = at::gelu_backward(wide(gradient), wide(before), "tanh");
  gradient.copy_(result);
  deliver(result, sums, adds);
}

}  // namespace lockstep::ops
