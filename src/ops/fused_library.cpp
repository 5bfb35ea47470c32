#include "ops/fused_library.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <map>
#include <memory>

#include "base/error.hpp"

namespace lockstep::ops {

cuda::Matmul& matmul() {
  static auto* const products = new cuda::Matmul([](std::int64_t bytes) {
    const auto block = std::make_shared<at::Tensor>(
        at::empty({bytes}, at::TensorOptions().device(at::kCUDA).dtype(at::kByte)));
    return std::shared_ptr<void>(block, block->data_ptr());
  });
  return *products;
}

cuda::Attention& attention_plan(const cuda::AttentionShape& shape) {
  static auto* const plans = new std::map<cuda::AttentionShape, std::unique_ptr<cuda::Attention>>;
  auto& plan = (*plans)[shape];
  if (!plan) plan = std::make_unique<cuda::Attention>(shape);
  return *plan;
}

bool attention_supported(const cuda::AttentionShape& shape) {
  static auto* const known = new std::map<cuda::AttentionShape, bool>;
  const auto found = known->find(shape);
  if (found != known->end()) return found->second;
  bool supported = true;
  try {
    attention_plan(shape).prepare();
  } catch (const ApiError&) {
    supported = false;
  }
  return (*known)[shape] = supported;
}

cuda::Number number_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16,
              "fused ops take half and bfloat16, got ", tensor.scalar_type());
  return tensor.scalar_type() == at::kHalf ? cuda::Number::float16 : cuda::Number::bfloat16;
}

namespace {

void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr() : nullptr;
}

}  // namespace

void multiply(const Product& product, const at::Tensor& out) {
  const at::Tensor& left = product.left;
  const at::Tensor& right = product.right;
  cuda::MatmulShape shape;
  shape.rows = left.size(product.left_transposed ? 1 : 0);
  shape.inner = left.size(product.left_transposed ? 0 : 1);
  shape.columns = right.size(product.right_transposed ? 0 : 1);
  TORCH_CHECK(right.size(product.right_transposed ? 1 : 0) == shape.inner && out.size(0) == shape.rows &&
                  out.size(1) == shape.columns,
              "matrix product of ", left.sizes(), " and ", right.sizes(), " does not fit ", out.sizes());
  TORCH_CHECK(left.is_contiguous() && right.is_contiguous() && out.is_contiguous() &&
                  left.scalar_type() == out.scalar_type() && right.scalar_type() == out.scalar_type(),
              "matrix products take contiguous tensors of one type");
  shape.left_transposed = product.left_transposed;
  shape.right_transposed = product.right_transposed;
  shape.adds = product.added.defined();
  shape.number = number_of(out);
  shape.epilogue = product.epilogue;
  cuda::MatmulOperands operands;
  operands.left = left.data_ptr();
  operands.right = right.data_ptr();
  operands.added = data_or_null(product.added);
  operands.result = out.data_ptr();
  operands.bias = data_or_null(product.bias);
  operands.auxiliary = data_or_null(product.auxiliary);
  matmul().run(shape, operands, c10::cuda::getCurrentCUDAStream().stream());
}

}  // namespace lockstep::ops
