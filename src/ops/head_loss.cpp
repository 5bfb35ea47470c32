#include "ops/head_loss.hpp"

#include <torch/torch.h>

#include <algorithm>

#include "ops/cross_entropy.hpp"
#include "ops/fused_library.hpp"
#include "ops/gradient_range.hpp"
#include "ops/kernel_choice.hpp"

namespace lockstep::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Logits that exist at one time. More rows make longer products, fewer keep memory low.
constexpr std::int64_t kLogitsBytes = std::int64_t{1} << 30;
constexpr std::int64_t kRowUnit = 1024;  // products of ragged row counts are slow

std::int64_t rows_at_once(const HeadInput& input) {
  const std::int64_t row_bytes = input.weight.size(0) * 2;
  return std::max(kRowUnit, kLogitsBytes / row_bytes / kRowUnit * kRowUnit);
}

/// Calls body(logits, first row, rows) for consecutive parts of the rows; `logits` may be overwritten.
template <class Body>
void for_each_part(const HeadInput& input, Body body) {
  const std::int64_t rows = input.x.size(0);
  const std::int64_t most = std::min(rows, rows_at_once(input));
  if (rows == 0) return;
  const at::Tensor logits = at::empty({most, input.weight.size(0)}, input.x.options());
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    at::Tensor part = logits.narrow(0, 0, count);
    multiply({.left = input.x.narrow(0, first, count), .right = input.weight, .right_transposed = true},
             part);
    body(part, first, count);
  }
}

class FusedHeadLoss : public torch::autograd::Function<FusedHeadLoss> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, std::int64_t classes,
                            const at::Tensor& loss_gradient) {
    const HeadInput input{x, weight, targets, classes};
    const at::Tensor losses = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    const at::Tensor d_x = at::empty_like(x);
    const GradientRange d_weight(weight);
    bool adds = d_weight.direct();
    if (d_weight.needed() && !adds && x.size(0) == 0) d_weight.target().zero_();
    for_each_part(input, [&](at::Tensor& logits, std::int64_t first, std::int64_t count) {
      at::Tensor part_losses = losses.narrow(0, first, count);
      cross_entropy_in_place(logits, classes, targets.narrow(0, first, count), loss_gradient, part_losses);
      multiply({.left = logits, .right = weight}, d_x.narrow(0, first, count));
      if (!d_weight.needed()) return;
      Product product{.left = logits, .left_transposed = true, .right = x.narrow(0, first, count)};
      if (adds) product.added = d_weight.target();
      multiply(product, d_weight.target());
      adds = true;
    });
    context->save_for_backward({d_x, d_weight.needed() ? d_weight.result() : at::Tensor(), loss_gradient});
    return sum_losses(losses);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    TORCH_CHECK(gradients[0].data_ptr() == saved[2].data_ptr(),
                "head_loss has formed its gradients already, with the loss gradient that it was given; the "
                "backward pass must begin with that tensor");
    return {saved[0], saved[1], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor head_loss(const HeadInput& input, const at::Tensor& loss_gradient) {
  TORCH_CHECK(input.x.dim() == 2 && input.weight.dim() == 2 && input.x.size(1) == input.weight.size(1) &&
                  input.targets.dim() == 1 && input.targets.size(0) == input.x.size(0) && input.classes > 0 &&
                  input.classes <= input.weight.size(0),
              "head_loss: x ", input.x.sizes(), ", weight ", input.weight.sizes(), ", targets ",
              input.targets.sizes(), " and ", input.classes, " classes do not fit together");
  const auto even = [&] {
    return input.x.size(1) % 8 == 0 && input.weight.size(0) % 8 == 0;
  };  // as in linear.cpp
  if (!use_fused(input.x, even, "an output head whose width is no multiple of 8"))
    return reference::head_loss(input);
  const HeadInput ready{input.x.contiguous(), input.weight, input.targets.contiguous(), input.classes};
  if (loss_gradient.defined() && at::GradMode::is_enabled()) {
    return FusedHeadLoss::apply(ready.x, ready.weight, ready.targets, ready.classes, loss_gradient);
  }
  if (at::GradMode::is_enabled()) return reference::head_loss(input);
  const at::Tensor losses = at::empty({ready.x.size(0)}, ready.x.options().dtype(at::kFloat));
  for_each_part(ready, [&](at::Tensor& logits, std::int64_t first, std::int64_t count) {
    losses.narrow(0, first, count)
        .copy_(cross_entropy_losses(logits, ready.classes, ready.targets.narrow(0, first, count)));
  });
  return sum_losses(losses);
}

at::Tensor reference::head_loss(const HeadInput& input) {
  return ops::cross_entropy_sum(at::linear(input.x, input.weight), input.targets, input.classes);
}

}  // namespace lockstep::ops
