#include <torch/torch.h>
#include "ops/layer_norm.hpp"
#include "ops/embedding.hpp"
#include "ops/cross_entropy.hpp"
namespace lockstep::ops {
Normalised layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return {at::layer_norm(x, {x.size(1)}, weight, bias, epsilon).to(x.scalar_type()), x};
}
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& wte, const at::Tensor& wpe) {
  return (at::embedding(wte, tokens) + wpe.slice(0, 0, tokens.size(1))).flatten(0, 1);
}
void cross_entropy_in_place(at::Tensor& logits, std::int64_t classes, const at::Tensor& targets, const at::Tensor& seed, at::Tensor& losses) {
  at::Tensor x = logits.narrow(1, 0, classes).to(at::kFloat);
  at::Tensor p = at::log_softmax(x, 1);
  losses.copy_(-p.gather(1, targets.unsqueeze(1)).squeeze(1));
  p.exp_();
  p.scatter_add_(1, targets.unsqueeze(1), at::full({targets.size(0), 1}, -1.0, p.options()));
  logits.zero_();
  logits.narrow(1, 0, classes).copy_(p * seed);
}
void cross_entropy_losses(const at::Tensor& logits, std::int64_t classes, const at::Tensor& targets, at::Tensor& losses) {
  losses.copy_(-at::log_softmax(logits.narrow(1, 0, classes).to(at::kFloat), 1).gather(1, targets.unsqueeze(1)).squeeze(1));
}
at::Tensor sum_losses(const at::Tensor& losses) { return losses.sum(); }
}
