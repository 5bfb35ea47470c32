// The fused layers of a transformer against their references in double, on the same inputs.
#include <torch/torch.h>

#include "differences.hpp"
#include "ops/attention.hpp"
#include "ops/column_sums.hpp"
#include "ops/head_loss.hpp"
#include "ops/linear.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

/// What a product of `inner` terms of size one may lose: one rounding of the result, and float sums.
double relative_to_size(const at::Tensor& seen, const at::Tensor& expected) {
  const at::Tensor wide = expected.to(at::kDouble);
  if (wide.numel() == 0) return 0;
  return ((seen.to(at::kDouble) - wide).norm() / (wide.norm() + 1e-30)).item<double>();
}

Tensors leaves(const Tensors& inputs, bool wide) {
  Tensors all;
  for (const auto& input : inputs)
    all.push_back((wide ? input.to(at::kDouble) : input.clone()).detach().requires_grad_());
  return all;
}

/// Runs both, backward from the same gradient, and compares the result and every gradient by norm.
void expect_like_reference(const Function& fused, const Function& reference, const Tensors& inputs) {
  const Tensors low = leaves(inputs, false), wide = leaves(inputs, true);
  const at::Tensor out = fused(low), expected = reference(wide);
  const double bound = inputs[0].scalar_type() == at::kHalf ? 1.5e-3 : 1.2e-2;
  CHECK(out.scalar_type() == inputs[0].scalar_type());
  CHECK(relative_to_size(out.detach(), expected.detach()) < bound);
  const at::Tensor d_out = torch::randn_like(out);
  out.backward(d_out);
  expected.backward(d_out.to(at::kDouble));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    INFO("gradient of input " << i);
    CHECK(relative_to_size(low[i].grad(), wide[i].grad()) < 2 * bound);
  }
}

at::Tensor random(at::IntArrayRef shape, at::ScalarType type, double scale = 1) {
  return (torch::randn(shape, at::TensorOptions().device(at::kCUDA)) * scale).to(type);
}

const auto kTypes = {at::kHalf, at::kBFloat16};

}  // namespace

TEST_CASE("fused linear layers are their references, at odd row counts and in both types", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(1);
  for (const auto type : kTypes) {
    for (const auto& [rows, in, out] :
         {std::tuple{1, 64, 128}, {5, 8, 24}, {1000, 768, 2304}, {4000, 768, 2304}, {333, 96, 64}}) {
      INFO(toString(type) << " " << rows << " x " << in << " -> " << out);
      expect_like_reference([](const Tensors& t) { return ops::linear(t[0], t[1], t[2]); },
                            [](const Tensors& t) { return ops::reference::linear(t[0], t[1], t[2]); },
                            {random({rows, in}, type), random({out, in}, type, 0.1), random({out}, type)});
      expect_like_reference(
          [](const Tensors& t) { return ops::linear_add(t[0], t[1], t[2], t[3]); },
          [](const Tensors& t) { return ops::reference::linear_add(t[0], t[1], t[2], t[3]); },
          {random({rows, in}, type), random({out, in}, type, 0.1), random({out}, type),
           random({rows, out}, type)});
    }
  }
}

TEST_CASE("the fused MLP is its reference", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(2);
  for (const auto type : kTypes) {
    for (const auto& [rows, width] : {std::pair{1, 64}, {77, 16}, {1000, 768}, {3000, 768}}) {
      INFO(toString(type) << " " << rows << " x " << width);
      expect_like_reference(
          [](const Tensors& t) {
            return ops::mlp_add(t[0], {t[1], t[2], t[3], t[4]}, t[5]);
          },
          [](const Tensors& t) {
            return ops::reference::mlp_add(t[0], {t[1], t[2], t[3], t[4]}, t[5]);
          },
          {random({rows, width}, type), random({4 * width, width}, type, 0.1), random({4 * width}, type),
           random({width, 4 * width}, type, 0.1), random({width}, type), random({rows, width}, type)});
    }
  }
}

TEST_CASE("weight gradients are added to the gradient that is there, and none is handed on", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(3);
  const at::Tensor x = random({40, 64}, at::kHalf), d_out = random({40, 128}, at::kHalf);
  at::Tensor weight = random({128, 64}, at::kHalf, 0.1).requires_grad_(),
             bias = random({128}, at::kHalf).requires_grad_();
  ops::linear(x, weight, bias).backward(d_out);
  const at::Tensor once = weight.grad().clone(), once_bias = bias.grad().clone();
  weight.mutable_grad() = torch::ones_like(weight);
  bias.mutable_grad() = torch::ones_like(bias);
  void* const place = weight.grad().data_ptr();
  ops::linear(x, weight, bias).backward(d_out);
  CHECK(weight.grad().data_ptr() == place);
  CHECK(test::is_near(weight.grad(), once.to(at::kFloat) + 1, 2e-3, 2e-3));
  CHECK(test::is_near(bias.grad(), once_bias.to(at::kFloat) + 1, 2e-3, 2e-3));
}

TEST_CASE("fused attention is its reference, for lengths that are no multiple of a tile", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(4);
  for (const auto type : kTypes) {
    for (const auto& [sequences, length, heads, width] :
         {std::tuple{1, 64, 1, 64}, {2, 1024, 12, 768}, {3, 200, 2, 128}, {5, 33, 4, 64}, {1, 1, 2, 32}}) {
      INFO(toString(type) << " " << sequences << " x " << length << ", " << heads << " heads of "
                          << width / heads);
      const std::int64_t s = sequences, h = heads;
      expect_like_reference([&](const Tensors& t) { return ops::attention(t[0], s, h); },
                            [&](const Tensors& t) { return ops::reference::attention(t[0], s, h); },
                            {random({sequences * length, 3 * width}, type)});
    }
  }
}

TEST_CASE("attention and linear layers give the same bits twice", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(5);
  const at::Tensor qkv = random({4 * 512, 3 * 256}, at::kHalf), d_out = random({4 * 512, 256}, at::kHalf);
  const at::Tensor weight = random({768, 256}, at::kHalf, 0.1), bias = random({768}, at::kHalf);
  const auto once = [&] {
    const at::Tensor in = qkv.clone().requires_grad_();
    ops::attention(in, 4, 4).backward(d_out);
    at::Tensor w = weight.clone().requires_grad_(), b = bias.clone().requires_grad_();
    ops::linear(d_out, w, b).backward(qkv);
    return Tensors{in.grad(), w.grad(), b.grad()};
  };
  const Tensors first = once(), second = once();
  for (std::size_t i = 0; i < first.size(); ++i) CHECK(at::equal(first[i], second[i]));
}

TEST_CASE("the head's loss and gradients in one pass are those of the reference, over several parts",
          "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(6);
  for (const auto& [rows, padded, classes] :
       {std::tuple{7, 256, 200}, {1024, 384, 257}, {12000, 50304, 50257}}) {
    INFO(rows << " rows, " << classes << " of " << padded);
    const at::Tensor x = random({rows, 64}, at::kHalf), weight = random({padded, 64}, at::kHalf, 0.2);
    const at::Tensor targets = at::randint(classes, {rows}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
    const at::Tensor seed =
        torch::full({}, 4096.0f / static_cast<float>(rows), at::TensorOptions().device(at::kCUDA));
    at::Tensor a = x.clone().requires_grad_(), w = weight.clone().requires_grad_();
    w.mutable_grad() = torch::zeros_like(weight);
    const at::Tensor loss = ops::head_loss({a, w, targets, classes}, seed);
    loss.backward(seed);
    at::Tensor b = x.to(at::kFloat).requires_grad_(), v = weight.to(at::kFloat).requires_grad_();
    const at::Tensor expected = ops::reference::head_loss({b, v, targets, classes});
    expected.backward(seed);
    CHECK(loss.item<float>() == Approx(expected.item<float>()).epsilon(2e-3));
    CHECK(relative_to_size(a.grad(), b.grad()) < 3e-3);
    CHECK(relative_to_size(w.grad(), v.grad()) < 3e-3);
    torch::NoGradGuard no_grad;
    CHECK(ops::head_loss({x, weight, targets, classes}, {}).item<float>() ==
          Approx(loss.item<float>()).epsilon(1e-6));
  }
}

TEST_CASE("the head's loss refuses a gradient other than the one it was given", "[gpu]") {
  if (!test::gpu_here()) return;
  const at::Tensor seed = torch::ones({}, at::TensorOptions().device(at::kCUDA));
  const at::Tensor x = random({4, 64}, at::kHalf).requires_grad_(), weight = random({128, 64}, at::kHalf);
  const at::Tensor targets = torch::zeros({4}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  const at::Tensor loss = ops::head_loss({x, weight, targets, 100}, seed);
  CHECK_THROWS_AS((loss * 2).backward(), c10::Error);
}

TEST_CASE("GELU's fused backward pass and column sums are the references'", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(7);
  for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat}) {
    for (const auto& [rows, columns] :
         {std::pair{0, 8}, {1, 1}, {3, 33}, {1000, 64}, {70001, 24}, {4096, 3072}}) {
      INFO(toString(type) << " " << rows << " x " << columns);
      const at::Tensor before = random({rows, columns}, type, 3), gradient = random({rows, columns}, type);
      at::Tensor seen = gradient.clone(), sums = torch::ones({columns}, gradient.options());
      ops::gelu_gradient(seen, before, sums, true);
      const at::Tensor expected = at::gelu_backward(gradient.to(at::kDouble), before.to(at::kDouble), "tanh");
      CHECK(test::is_near(seen, expected, 2 * test::rounding(type), 1e-5));
      const double noise = 1e-5 * std::sqrt(static_cast<double>(rows) + 1);
      CHECK(test::is_near(sums, expected.sum(0) + 1, test::rounding(type), noise));
      ops::column_sums(gradient, sums, false);
      CHECK(test::is_near(sums, gradient.to(at::kDouble).sum(0), test::rounding(type), noise));
    }
  }
  const at::Tensor ends = at::tensor({-100.0f, -20.0f, 20.0f, 100.0f}, at::kCUDA).view({1, 4}).to(at::kHalf);
  at::Tensor slope = torch::ones_like(ends), sums = torch::zeros({4}, slope.options());
  ops::gelu_gradient(slope, ends, sums, false);
  CHECK(at::equal(slope.cpu(), at::tensor({0.0f, 0.0f, 1.0f, 1.0f}).view({1, 4}).to(at::kHalf)));
}
