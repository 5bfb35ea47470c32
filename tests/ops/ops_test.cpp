#include <torch/torch.h>

#include "ops/cross_entropy.hpp"
#include "ops/normalise.hpp"
#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("cross-entropy is the sum over rows and its gradient passes finite differences") {
  torch::manual_seed(4);
  const at::Tensor logits = torch::randn({5, 7}, at::kDouble).requires_grad_();
  const at::Tensor targets = torch::randint(0, 7, {5});
  const at::Tensor loss = ops::cross_entropy_sum(logits, targets);
  CHECK(loss.item<double>() ==
        Approx(torch::nn::functional::cross_entropy(
                   logits, targets, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
                   .item<double>()));
  loss.backward();
  torch::NoGradGuard no_grad;
  const double step = 1e-6;
  for (int i = 0; i < 35; ++i) {
    at::Tensor up = logits.detach().clone();
    at::Tensor down = logits.detach().clone();
    up.view(-1)[i] += step;
    down.view(-1)[i] -= step;
    const double slope =
        (ops::cross_entropy_sum(up, targets) - ops::cross_entropy_sum(down, targets)).item<double>() /
        (2 * step);
    CHECK(logits.grad().view(-1)[i].item<double>() == Approx(slope).margin(1e-6));
  }
}

TEST_CASE("no rows give a loss of zero and an empty gradient") {
  const at::Tensor logits = torch::zeros({0, 7}).requires_grad_();
  const at::Tensor loss = ops::cross_entropy_sum(logits, torch::zeros({0}, at::kLong));
  CHECK(loss.item<float>() == 0);
  loss.backward();
  CHECK(logits.grad().sizes() == logits.sizes());
}

TEST_CASE("70,000 rows of half logits count in float (P8)") {
  const at::Tensor logits = torch::zeros({70000, 4}, at::kHalf).requires_grad_();
  const at::Tensor loss = ops::cross_entropy_sum(logits, torch::zeros({70000}, at::kLong));
  CHECK(loss.item<float>() == Approx(70000 * std::log(4.0)).epsilon(1e-4));
  loss.backward(torch::tensor(65536.0f / 70000));
  CHECK(logits.grad().abs().min().item<float>() > 0);
}

TEST_CASE("normalise scales and shifts each channel") {
  const at::Tensor in = torch::randint(0, 256, {3, 2, 4, 4}).to(at::kByte);
  const at::Tensor scale = torch::tensor({0.5f, 2.0f});
  const at::Tensor shift = torch::tensor({1.0f, -1.0f});
  const at::Tensor out = ops::normalise(in, scale, shift, at::kFloat);
  CHECK(out.select(1, 0).equal(in.select(1, 0).to(at::kFloat) * 0.5f + 1.0f));
  CHECK(out.select(1, 1).equal(in.select(1, 1).to(at::kFloat) * 2.0f - 1.0f));
  CHECK(ops::normalise(in.narrow(0, 0, 0), scale, shift, at::kHalf).size(0) == 0);
}
