#include "ops/layer_norm.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "ops/element.hpp"
#include "ops/gradient_range.hpp"
#include "ops/kernel_choice.hpp"
#include "ops/kernels.hpp"

namespace lockstep::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

Matrix matrix_of(const at::Tensor& x) {
  return {x.const_data_ptr(), element_of(x), x.size(0), x.size(1)};
}

cuda_kernels::FloatGradient float_gradient(const GradientRange& range) {
  if (!range.needed()) return {nullptr, false};
  return {range.target().data_ptr<float>(), range.direct()};
}

class FusedLayerNorm : public torch::autograd::Function<FusedLayerNorm> {
 public:
  static tensor_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, double epsilon) {
    const at::Tensor in = x.contiguous();
    const at::Tensor out = at::empty_like(in);
    const at::Tensor mean = at::empty({in.size(0)}, in.options().dtype(at::kFloat));
    const at::Tensor rstd = at::empty_like(mean);
    cuda_kernels::layer_norm_forward(matrix_of(in), weight.const_data_ptr<float>(),
                                     bias.const_data_ptr<float>(), static_cast<float>(epsilon),
                                     out.data_ptr(), mean.data_ptr<float>(), rstd.data_ptr<float>(),
                                     c10::cuda::getCurrentCUDAStream().stream());
    context->save_for_backward({in, weight, bias, mean, rstd});
    context->set_materialize_grads(false);  // an unused result costs nothing
    return {out, x};
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const at::Tensor& d_passed = gradients[1];
    if (!gradients[0].defined()) return {d_passed, at::Tensor(), at::Tensor(), at::Tensor()};
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor d_out = gradients[0].contiguous();
    const at::Tensor beside = d_passed.defined() ? d_passed.contiguous() : at::Tensor();
    const at::Tensor dx = at::empty_like(x);
    const GradientRange dweight(weight);
    const GradientRange dbias(saved[2]);
    const Matrix in = matrix_of(x);
    const at::Tensor partials = at::empty({cuda_kernels::layer_norm_partials(in)}, saved[3].options());
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    cuda_kernels::layer_norm_backward({in, weight.const_data_ptr<float>(), saved[3].const_data_ptr<float>(),
                                       saved[4].const_data_ptr<float>()},
                                      d_out.const_data_ptr(),
                                      beside.defined() ? beside.const_data_ptr() : nullptr, dx.data_ptr(),
                                      partials.data_ptr<float>(), stream);
    cuda_kernels::layer_norm_parameters(in, partials.const_data_ptr<float>(), float_gradient(dweight),
                                        float_gradient(dbias), stream);
    return {dx, dweight.result(), dbias.result(), at::Tensor()};
  }
};

}  // namespace

Normalised layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 1 && weight.sizes() == bias.sizes() &&
                  x.size(1) == weight.size(0) && x.size(1) > 0,
              "layer_norm: rows ", x.sizes(), " do not fit weight ", weight.sizes(), " and bias ",
              bias.sizes());
  if (!x.is_cuda() || !fused_allowed()) return reference::layer_norm(x, weight, bias, epsilon);
  TORCH_CHECK(weight.scalar_type() == at::kFloat && bias.scalar_type() == at::kFloat &&
                  weight.is_contiguous() && bias.is_contiguous(),
              "layer_norm: weight is ", weight.scalar_type(), " and bias is ", bias.scalar_type(),
              "; the fused op takes contiguous float");
  const auto results = FusedLayerNorm::apply(x, weight, bias, epsilon);
  return {results[0], results[1]};
}

Normalised reference::layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 double epsilon) {
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const at::Tensor off = wide - wide.mean(1, /*keepdim=*/true);
  const at::Tensor rstd = (off.square().mean(1, /*keepdim=*/true) + epsilon).rsqrt();
  return {(off * rstd * weight + bias).to(x.scalar_type()), x};
}

}  // namespace lockstep::ops
