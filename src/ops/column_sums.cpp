#include "ops/column_sums.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "ops/element.hpp"
#include "ops/kernels.hpp"

namespace lockstep::ops {

void column_sums(const at::Tensor& matrix, const at::Tensor& sums, bool adds) {
  TORCH_CHECK(matrix.dim() == 2 && matrix.is_contiguous() && sums.is_contiguous() &&
                  sums.numel() == matrix.size(1) && sums.scalar_type() == matrix.scalar_type(),
              "sums over rows of ", matrix.sizes(), " do not fit ", sums.sizes());
  if (!matrix.is_cuda()) return reference::column_sums(matrix, sums, adds);
  const std::int64_t blocks = cuda_kernels::row_blocks(matrix.size(0));
  const at::Tensor partial = at::empty({blocks, matrix.size(1)}, matrix.options().dtype(at::kFloat));
  cuda_kernels::column_sums({matrix.const_data_ptr(), element_of(matrix), matrix.size(0), matrix.size(1)},
                            partial.data_ptr<float>(), sums.data_ptr(), adds,
                            c10::cuda::getCurrentCUDAStream().stream());
}

namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

void deliver(const at::Tensor& values, const at::Tensor& sums, bool adds) {
  const at::Tensor sum = values.sum(0);
  sums.copy_(adds ? wide(sums) + sum : sum);
}

}  // namespace

void reference::column_sums(const at::Tensor& matrix, const at::Tensor& sums, bool adds) {
  deliver(wide(matrix), sums, adds);
}

}  // namespace lockstep::ops
