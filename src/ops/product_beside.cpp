#include "ops/product_beside.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <limits>

#include "ops/element.hpp"
#include "ops/hopper/product.hpp"

namespace lockstep::ops {

namespace {

using cuda_kernels::HopperProduct;
using cuda_kernels::ProductEpilogue;

constexpr std::int64_t kUnit = 8;  // columns of 16 bytes
/// Elements of the result; a smaller one is no faster here (perf/results/epilogues-h200.json).
constexpr std::int64_t kLeastElements = std::int64_t{1} << 23;

HopperProduct describe(const at::Tensor& left, const at::Tensor& right, std::int64_t inner_of_right,
                       const at::Tensor& result, ProductEpilogue epilogue) {
  HopperProduct product{};
  product.element = element_of(result);
  product.rows = left.size(0);
  product.columns = result.size(1);
  product.inner = left.size(1);
  TORCH_CHECK(right.size(inner_of_right) == product.inner &&
                  right.size(1 - inner_of_right) == product.columns && result.size(0) == product.rows,
              "matrix product of ", left.sizes(), " and ", right.sizes(), " does not fit ", result.sizes());
  TORCH_CHECK(product.columns % kUnit == 0 && product.inner % kUnit == 0 &&
                  product.rows * product.columns < kUnit * std::numeric_limits<int>::max(),
              "matrix product beside its epilogue: ", left.sizes(), " x ", right.sizes(),
              " is no size for it");
  for (const at::Tensor& matrix : {left, right, result})
    TORCH_CHECK(matrix.is_contiguous() && matrix.scalar_type() == result.scalar_type(),
                "matrix products take contiguous tensors of one type");
  product.left = left.const_data_ptr();
  product.right = right.const_data_ptr();
  product.result = result.data_ptr();
  product.epilogue = epilogue;
  return product;
}

void launch(const HopperProduct& product) {
#ifdef LOCKSTEP_HOPPER
  cuda_kernels::hopper_product(product, c10::cuda::getCurrentCUDAStream().stream());
#else
  TORCH_CHECK(false, "this build has no kernels for compute capability 9.0");
#endif
}

}  // namespace

bool runs_beside(const at::Tensor& left, std::int64_t columns) {
#ifdef LOCKSTEP_HOPPER
  const auto* const device = at::cuda::getDeviceProperties(left.get_device());
  return device->major == 9 && device->minor == 0 && left.size(0) * columns >= kLeastElements;
#else
  return false;
#endif
}

void product_bias(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& out) {
  HopperProduct product = describe(x, weight, 1, out, ProductEpilogue::bias);
  product.bias = bias.const_data_ptr();
  launch(product);
}

void product_bias_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& slope, const at::Tensor& hidden) {
  HopperProduct product = describe(x, weight, 1, hidden, ProductEpilogue::bias_gelu);
  product.bias = bias.const_data_ptr();
  product.auxiliary = slope.data_ptr();
  launch(product);
}

void product_times(const at::Tensor& left, const at::Tensor& weight, const at::Tensor& factor,
                   const at::Tensor& result, const at::Tensor& sums, bool adds) {
  HopperProduct product = describe(left, weight, 0, result, ProductEpilogue::factor_sums);
  const std::int64_t parts = cuda_kernels::hopper_parts(product.rows);
  const at::Tensor partial = at::empty({parts, product.columns}, left.options().dtype(at::kFloat));
  product.auxiliary = factor.data_ptr();
  product.partial = partial.data_ptr<float>();
  launch(product);
  cuda_kernels::add_parts(
      {product.element, product.rows, product.columns, product.partial, sums.data_ptr(), adds}, parts,
      c10::cuda::getCurrentCUDAStream().stream());
}

}  // namespace lockstep::ops
