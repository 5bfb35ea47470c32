#include "ops/product_beside.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <cstdint>
#include <limits>

#include "ops/element.hpp"
#include "ops/hopper/product.hpp"
#include "ops/hopper/weight_gradient.hpp"

namespace lockstep::ops {

namespace {

using cuda_kernels::HopperProduct;
using cuda_kernels::ProductEpilogue;

constexpr std::int64_t kUnit = 8;   // columns of 16 bytes
constexpr std::size_t kBytes = 16;  // of an access
/// Elements of the result: two rounds of tiles for all multiprocessors, so that the last tiles' epilogues are
/// a small part. Smaller products were not measured.
constexpr std::int64_t kLeastElements = std::int64_t{1} << 23;

constexpr std::int64_t kLeastRows = std::int64_t{1} << 14;    // of a weight's gradient
constexpr std::int64_t kMostWeights = std::int64_t{1} << 22;  // its tiles occupy all multiprocessors once

/// Whether the kernel's indices hold every element, in units of 16 bytes.
bool indices_fit(std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max() - (1 << 10);  // a tile may begin beyond
  return rows <= kMost && columns <= kMost && inner <= kMost && rows * columns <= kUnit * kMost;
}

void check_operand(const char* name, const at::Tensor& tensor, at::IntArrayRef sizes,
                   const at::Tensor& result) {
  TORCH_CHECK(tensor.sizes() == sizes, "matrix product beside its epilogue: ", name, " is ", tensor.sizes(),
              ", a result of ", result.sizes(), " takes ", sizes);
  TORCH_CHECK(tensor.is_contiguous() && tensor.scalar_type() == result.scalar_type() &&
                  tensor.device() == result.device(),
              "matrix product beside its epilogue: ", name, " must be contiguous, of ", result.scalar_type(),
              " and on ", result.device(), ", as the result is");
  TORCH_CHECK(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kBytes == 0,
              "matrix product beside its epilogue: ", name, " begins at no multiple of ", kBytes,
              " bytes; take a copy of it");
}

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
  TORCH_CHECK(product.columns % kUnit == 0 && product.inner % kUnit == 0 && product.inner > 0 &&
                  indices_fit(product.rows, product.columns, product.inner),
              "matrix product beside its epilogue: ", left.sizes(), " x ", right.sizes(),
              " is no size for it; widths must be multiples of ", kUnit);
  TORCH_CHECK(result.scalar_type() == at::kHalf || result.scalar_type() == at::kBFloat16,
              "matrix product beside its epilogue takes half and bfloat16, got ", result.scalar_type());
  check_operand("the left matrix", left, left.sizes(), result);
  check_operand("the right matrix", right, right.sizes(), result);
  check_operand("the result", result, result.sizes(), result);
  product.left = left.const_data_ptr();
  product.right = right.const_data_ptr();
  product.result = result.data_ptr();
  product.epilogue = epilogue;
  return product;
}

bool is_hopper(const at::Tensor& tensor) {
#ifdef LOCKSTEP_HOPPER
  const auto* const device = at::cuda::getDeviceProperties(tensor.get_device());
  return device->major == 9 && device->minor == 0;
#else
  return false;
#endif
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
  return is_hopper(left) && left.size(0) * columns >= kLeastElements &&
         indices_fit(left.size(0), columns, left.size(1));
}

bool sums_beside(const at::Tensor& d_out, std::int64_t in) {
  return is_hopper(d_out) && d_out.size(0) >= kLeastRows && d_out.size(1) * in <= kMostWeights &&
         d_out.size(0) <= std::numeric_limits<int>::max() / 2;
}

void product_bias(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& out) {
  HopperProduct product = describe(x, weight, 1, out, ProductEpilogue::bias);
  check_operand("the bias", bias, {product.columns}, out);
  product.bias = bias.const_data_ptr();
  launch(product);
}

void product_bias_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& slope, const at::Tensor& hidden) {
  HopperProduct product = describe(x, weight, 1, hidden, ProductEpilogue::bias_gelu);
  check_operand("the bias", bias, {product.columns}, hidden);
  check_operand("GELU's slope", slope, hidden.sizes(), hidden);
  product.bias = bias.const_data_ptr();
  product.auxiliary = slope.data_ptr();
  launch(product);
}

void product_times(const at::Tensor& left, const at::Tensor& weight, const at::Tensor& factor,
                   const at::Tensor& result, const at::Tensor& sums, bool adds) {
  HopperProduct product = describe(left, weight, 0, result, ProductEpilogue::factor_sums);
  check_operand("the factor", factor, result.sizes(), result);
  TORCH_CHECK(
      sums.numel() == product.columns && sums.is_contiguous() && sums.scalar_type() == result.scalar_type(),
      "sums over rows of ", result.sizes(), " do not fit ", sums.sizes());
  const std::int64_t parts = cuda_kernels::hopper_parts(product.rows);
  const at::Tensor partial = at::empty({parts, product.columns}, left.options().dtype(at::kFloat));
  product.auxiliary = factor.data_ptr();
  product.partial = partial.data_ptr<float>();
  launch(product);
  cuda_kernels::add_parts(
      {product.element, product.rows, product.columns, product.partial, sums.data_ptr(), adds}, parts,
      c10::cuda::getCurrentCUDAStream().stream());
}

void weight_gradient_beside(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& d_weight,
                            bool adds, const at::Tensor& d_bias, bool adds_bias) {
  const std::int64_t rows = d_out.size(0), out = d_out.size(1), in = x.size(1);
  TORCH_CHECK(d_weight.scalar_type() == at::kHalf || d_weight.scalar_type() == at::kBFloat16,
              "gradient of a weight beside its bias's takes half and bfloat16, got ", d_weight.scalar_type());
  TORCH_CHECK(rows > 0 && rows <= std::numeric_limits<int>::max() / 2 && out % kUnit == 0 && in % kUnit == 0,
              "gradient of a weight beside its bias's: ", d_out.sizes(), " and ", x.sizes(),
              " are no sizes for it; widths must be multiples of ", kUnit, " and rows there");
  check_operand("the output's gradient", d_out, d_out.sizes(), d_weight);
  check_operand("the input", x, {rows, in}, d_weight);
  check_operand("the weight's gradient", d_weight, {out, in}, d_weight);
  check_operand("the bias's gradient", d_bias, {out}, d_weight);
#ifdef LOCKSTEP_HOPPER
  const at::Tensor work = at::empty({cuda_kernels::hopper_weight_gradient_work(rows, out, in)},
                                    d_out.options().dtype(at::kFloat));
  cuda_kernels::hopper_weight_gradient(
      {element_of(d_weight), rows, out, in, d_out.const_data_ptr(), x.const_data_ptr(), d_weight.data_ptr(),
       adds, d_bias.data_ptr(), adds_bias, work.data_ptr<float>()},
      c10::cuda::getCurrentCUDAStream().stream());
#else
  TORCH_CHECK(false, "this build has no kernels for compute capability 9.0");
#endif
}

}  // namespace lockstep::ops
