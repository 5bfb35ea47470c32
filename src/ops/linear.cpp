#include "ops/linear.hpp"

#include <torch/torch.h>

#include "ops/column_sums.hpp"
#include "ops/fused_library.hpp"
#include "ops/gradient_range.hpp"
#include "ops/kernel_choice.hpp"
#include "ops/product_beside.hpp"

namespace lockstep::ops {

namespace {

using cuda::Epilogue;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// d_weight = d_out^T x, and d_bias = the sums over rows of d_out where `bias` takes a gradient: both
/// returned as autograd wants them, undefined where they went straight into the parameter's own gradient.
struct WeightGradients {
  at::Tensor weight, bias;
};

WeightGradients weight_gradients(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias) {
  const GradientRange d_weight(weight);
  const GradientRange d_bias(bias);
  WeightGradients result;
  if (d_weight.needed() && d_bias.needed() && sums_beside(d_out, x.size(1))) {
    weight_gradient_beside(d_out, x, d_weight.target(), d_weight.direct(), d_bias.target(), d_bias.direct());
    return {d_weight.result(), d_bias.result()};
  }
  if (d_weight.needed()) {
    Product product{.left = d_out, .left_transposed = true, .right = x};
    if (d_weight.direct()) product.added = d_weight.target();
    multiply(product, d_weight.target());
    result.weight = d_weight.result();
  }
  if (!d_bias.needed()) return result;
  column_sums(d_out, d_bias.target(), d_bias.direct());
  result.bias = d_bias.result();
  return result;
}

/// Without `residual` a plain linear layer.
class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual) {
    const at::Tensor out = at::empty({x.size(0), weight.size(0)}, x.options());
    if (!residual && runs_beside(x, out.size(1))) {
      product_bias(x, weight, bias, out);
    } else {
      multiply({.left = x,
                .right = weight,
                .right_transposed = true,
                .epilogue = Epilogue::bias,
                .added = residual.value_or(at::Tensor()),
                .bias = bias},
               out);
    }
    context->save_for_backward({x, weight, bias});
    context->saved_data["adds"] = residual.has_value();
    return out;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor d_out = gradients[0].contiguous();
    const auto [d_weight, d_bias] = weight_gradients(d_out, x, saved[1], saved[2]);
    at::Tensor d_x;
    if (context->needs_input_grad(0)) {
      d_x = at::empty_like(x);
      multiply({.left = d_out, .right = saved[1]}, d_x);
    }
    return {d_x, d_weight, d_bias, context->saved_data["adds"].toBool() ? d_out : at::Tensor()};
  }
};

class FusedMlp : public torch::autograd::Function<FusedMlp> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& in_weight,
                            const at::Tensor& in_bias, const at::Tensor& out_weight,
                            const at::Tensor& out_bias, const at::Tensor& residual) {
    const at::Tensor hidden = at::empty({x.size(0), in_weight.size(0)}, x.options());
    const at::Tensor kept = at::empty_like(hidden);  // GELU's slope, or what goes into it
    const bool beside = runs_beside(x, hidden.size(1));
    const at::Tensor out = at::empty({x.size(0), out_weight.size(0)}, x.options());
    if (beside) {
      product_bias_gelu(x, in_weight, in_bias, kept, hidden);
    } else {
      multiply({.left = x,
                .right = in_weight,
                .right_transposed = true,
                .epilogue = Epilogue::bias_gelu,
                .bias = in_bias,
                .auxiliary = kept},
               hidden);
    }
    multiply({.left = hidden,
              .right = out_weight,
              .right_transposed = true,
              .epilogue = Epilogue::bias,
              .added = residual,
              .bias = out_bias},
             out);
    context->save_for_backward({x, in_weight, in_bias, out_weight, out_bias, kept, hidden});
    context->saved_data["beside"] = beside;
    return out;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &in_weight = saved[1], &in_bias = saved[2], &out_weight = saved[3],
                     &kept = saved[5], &hidden = saved[6];
    const at::Tensor d_out = gradients[0].contiguous();
    const auto [d_out_weight, d_out_bias] = weight_gradients(d_out, hidden, out_weight, saved[4]);
    const at::Tensor d_before = at::empty_like(hidden);  // of what goes into GELU
    const GradientRange d_in_bias(in_bias);
    const at::Tensor sums = d_in_bias.needed() ? d_in_bias.target() : at::empty_like(in_bias);
    if (context->saved_data["beside"].toBool()) {
      product_times(d_out, out_weight, kept, d_before, sums, d_in_bias.direct());
    } else {
      multiply({.left = d_out, .right = out_weight}, d_before);
      gelu_gradient(d_before, kept, sums, d_in_bias.direct());
    }
    const at::Tensor d_in_weight = weight_gradients(d_before, x, in_weight, at::Tensor()).weight;
    at::Tensor d_x;
    if (context->needs_input_grad(0)) {
      d_x = at::empty_like(x);
      multiply({.left = d_before, .right = in_weight}, d_x);
    }
    return {d_x, d_in_weight, d_in_bias.result(), d_out_weight, d_out_bias, d_out};
  }
};

/// Rows of products must begin at multiples of 16 bytes.
bool is_fused(const at::Tensor& x, const at::Tensor& weight) {
  constexpr std::int64_t kUnit = 8;
  return use_fused(
      x, [&] { return weight.size(0) % kUnit == 0 && weight.size(1) % kUnit == 0; },
      "linear layers whose widths are no multiple of 8");
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!is_fused(x, weight)) return reference::linear(x, weight, bias);
  return FusedLinear::apply(x.contiguous(), weight, bias, std::optional<at::Tensor>());
}

at::Tensor linear_add(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& residual) {
  if (!is_fused(x, weight)) return reference::linear_add(x, weight, bias, residual);
  return FusedLinear::apply(x.contiguous(), weight, bias, std::optional<at::Tensor>(residual.contiguous()));
}

at::Tensor mlp_add(const at::Tensor& x, const MlpWeights& weights, const at::Tensor& residual) {
  if (!is_fused(x, weights.in_weight)) return reference::mlp_add(x, weights, residual);
  return FusedMlp::apply(x.contiguous(), weights.in_weight, weights.in_bias, weights.out_weight,
                         weights.out_bias, residual.contiguous());
}

at::Tensor reference::linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x, weight, bias);
}

at::Tensor reference::linear_add(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 const at::Tensor& residual) {
  return residual + at::linear(x, weight, bias);
}

at::Tensor reference::mlp_add(const at::Tensor& x, const MlpWeights& weights, const at::Tensor& residual) {
  const at::Tensor hidden = at::gelu(at::linear(x, weights.in_weight, weights.in_bias), "tanh");
  return residual + at::linear(hidden, weights.out_weight, weights.out_bias);
}

}  // namespace lockstep::ops
