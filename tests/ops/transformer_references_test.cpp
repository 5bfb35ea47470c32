// The references of a transformer's layers, on the CPU, against finite differences.
#include <torch/torch.h>

#include "differences.hpp"
#include "ops/attention.hpp"
#include "ops/column_sums.hpp"
#include "ops/head_loss.hpp"
#include "ops/kernel_choice.hpp"
#include "ops/linear.hpp"
#include "ops/recompute.hpp"

using namespace lockstep;

namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor random(at::IntArrayRef shape) {
  return torch::randn(shape, at::kDouble);
}

}  // namespace

TEST_CASE("linear layers pass finite differences, with and without a residual, also of no rows") {
  torch::manual_seed(1);
  for (const std::int64_t rows : {0, 1, 5}) {
    INFO(rows);
    const at::Tensor weighing = random({rows, 4});
    test::expect_slopes(
        [&](const Tensors& in) { return (ops::linear(in[0], in[1], in[2]) * weighing).sum(); },
        {random({rows, 3}), random({4, 3}), random({4})});
    test::expect_slopes(
        [&](const Tensors& in) { return (ops::linear_add(in[0], in[1], in[2], in[3]) * weighing).sum(); },
        {random({rows, 3}), random({4, 3}), random({4}), random({rows, 4})});
    test::expect_slopes(
        [&](const Tensors& in) {
          return (ops::mlp_add(in[0], {in[1], in[2], in[3], in[4]}, in[5]) * weighing).sum();
        },
        {random({rows, 4}), random({7, 4}), random({7}), random({4, 7}), random({4}), random({rows, 4})});
  }
}

TEST_CASE("attention passes finite differences and is causal softmax attention written out") {
  torch::manual_seed(2);
  constexpr std::int64_t kSequences = 2, kLength = 5, kHeads = 3, kWidth = 6;
  const at::Tensor qkv = random({kSequences * kLength, 3 * kWidth});
  const at::Tensor weighing = random({kSequences * kLength, kWidth});
  test::expect_slopes(
      [&](const Tensors& in) { return (ops::attention(in[0], kSequences, kHeads) * weighing).sum(); }, {qkv});
  const at::Tensor out = ops::attention(qkv, kSequences, kHeads).view({kSequences, kLength, kHeads, 2});
  const at::Tensor parts = qkv.view({kSequences, kLength, 3, kHeads, 2});
  for (std::int64_t t = 0; t < kLength; ++t) {
    const at::Tensor query = parts[1][t][0][2];  // sequence 1, head 2
    const at::Tensor keys = parts[1].slice(0, 0, t + 1).select(1, 1).select(1, 2);
    const at::Tensor values = parts[1].slice(0, 0, t + 1).select(1, 2).select(1, 2);
    const at::Tensor weights = at::softmax(at::mv(keys, query) / std::sqrt(2.0), 0);
    CHECK(test::is_near(out[1][t][2], at::mv(values.t(), weights), 1e-10, 1e-12));
  }
  CHECK(ops::attention(at::empty({0, 18}), 0, 3).sizes() == at::IntArrayRef{0, 6});
  CHECK_THROWS_AS(ops::attention(qkv, 3, kHeads), c10::Error);
}

TEST_CASE("attention after earlier tokens is the last rows of attention over all") {
  torch::manual_seed(3);
  constexpr std::int64_t kHeads = 3, kLength = 7, kWidth = 6;
  for (const auto type : {at::kDouble, at::kFloat}) {
    const at::Tensor qkv = torch::randn({kLength, 3 * kWidth}, type);
    const at::Tensor whole = ops::attention(qkv, 1, kHeads);
    for (std::int64_t first = 0; first <= kLength; ++first) {
      const at::Tensor kept = at::full({2, kHeads, kLength + 1, kWidth / kHeads}, NAN, qkv.options());
      const at::Tensor before = ops::attention_after(qkv.narrow(0, 0, first), kept, 0);
      const at::Tensor after = ops::attention_after(qkv.narrow(0, first, kLength - first), kept, first);
      CHECK(at::allclose(at::cat({before, after}), whole, 1e-5, 1e-6));
    }
  }
  const at::Tensor kept = at::zeros({2, kHeads, 4, 2}), qkv = at::zeros({2, 3 * kWidth});
  CHECK_THROWS_AS(ops::attention_after(qkv, kept, 3), c10::Error);
  CHECK_THROWS_AS(ops::attention_after(qkv.narrow(1, 0, 12), kept, 0), c10::Error);
}

TEST_CASE("the head's loss passes finite differences and leaves padding out of the softmax") {
  torch::manual_seed(3);
  const at::Tensor targets = at::tensor({0, 4, 2}, at::kLong);
  const at::Tensor x = random({3, 4}), weight = random({8, 4});
  test::expect_slopes(
      [&](const Tensors& in) {
        return ops::head_loss({in[0], in[1], targets, 5}, {});
      },
      {x, weight});
  const at::Tensor expected =
      at::cross_entropy_loss(at::linear(x, weight).slice(1, 0, 5), targets, {}, at::Reduction::Sum);
  CHECK(ops::head_loss({x, weight, targets, 5}, {}).item<double>() == Approx(expected.item<double>()));
  CHECK_THROWS_AS(ops::head_loss({x, weight, targets, 9}, {}), c10::Error);
}

TEST_CASE("GELU's backward pass in place is ATen's, and sums are sums over rows") {
  torch::manual_seed(4);
  const at::Tensor before = random({6, 5}) * 3, gradient = random({6, 5});
  const at::Tensor expected = at::gelu_backward(gradient, before, "tanh");
  at::Tensor result = gradient.clone(), sums = torch::ones({5}, at::kDouble);
  ops::gelu_gradient(result, before, sums, true);
  CHECK(test::is_near(result, expected, 1e-12, 1e-12));
  CHECK(test::is_near(sums, expected.sum(0) + 1, 1e-12, 1e-12));
  ops::column_sums(gradient, sums, false);
  CHECK(test::is_near(sums, gradient.sum(0), 1e-12, 1e-12));
}

TEST_CASE("recompute gives the gradients of what it wraps, of its input and of parameters inside") {
  torch::manual_seed(5);
  const at::Tensor inside = random({4}).requires_grad_();
  test::expect_slopes(
      [&](const Tensors& in) {
        return ops::recompute([&](const at::Tensor& x) { return (x * inside).sin(); }, in[0]).square().sum();
      },
      {random({3, 4})});
  const at::Tensor x = random({3, 4});
  inside.mutable_grad() = at::Tensor();
  ops::recompute([&](const at::Tensor& in) { return (in * inside).sin(); }, x.clone().requires_grad_())
      .sum()
      .backward();
  CHECK(test::is_near(inside.grad(), (x * (x * inside).cos()).sum(0).detach(), 1e-12, 1e-12));
}

TEST_CASE("--ops fused is refused where nothing fused can run") {
  ops::set_kernels(ops::Kernels::fused);
  const auto yes = [] { return true; };
  CHECK_THROWS_WITH(ops::use_fused(torch::zeros({1}, at::kHalf), yes, "x"),
                    test::contains("--ops fused needs fp16 or bf16 on a GPU"));
  ops::set_kernels(ops::Kernels::automatic);
  CHECK_FALSE(ops::use_fused(torch::zeros({1}, at::kHalf), yes, "x"));
}
