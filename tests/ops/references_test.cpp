// The references of the fused ops, on the CPU.
#include <torch/torch.h>

#include <cmath>

#include "differences.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/embedding.hpp"
#include "ops/layer_norm.hpp"

using namespace lockstep;

TEST_CASE("layer_norm is ATen's, and both gradients of x pass finite differences") {
  torch::manual_seed(1);
  for (const auto& [rows, columns] : {std::pair{0, 5}, {1, 1}, {3, 7}, {2, 33}, {5, 8}}) {
    INFO(rows << " x " << columns);
    const at::Tensor x = torch::randn({rows, columns}, at::kDouble);
    const at::Tensor weight = torch::randn({columns}, at::kDouble);
    const at::Tensor bias = torch::randn({columns}, at::kDouble);
    const auto [out, passed] = ops::layer_norm(x, weight, bias, 1e-5);
    if (rows > 0) CHECK(test::is_near(out, at::layer_norm(x, {columns}, weight, bias, 1e-5), 1e-12, 1e-12));
    CHECK(passed.equal(x));
    const at::Tensor of_out = torch::randn_like(x);
    const at::Tensor of_passed = torch::randn_like(x);
    test::expect_slopes(
        [&](const std::vector<at::Tensor>& in) {
          const auto [y, beside] = ops::layer_norm(in[0], in[1], in[2], 0.1);
          return (y * of_out).sum() + (beside.square() * of_passed).sum();
        },
        {x, weight, bias});
  }
}

TEST_CASE("layer_norm of halves computes in float, and rounds once") {
  const at::Tensor x = (torch::randn({4, 300}) * 100).to(at::kHalf);
  const auto [out, passed] = ops::layer_norm(x, torch::ones({300}), torch::zeros({300}), 1e-5);
  CHECK(out.scalar_type() == at::kHalf);
  const at::Tensor expected = at::layer_norm(x.to(at::kDouble), {300});
  CHECK(test::is_near(out, expected, test::rounding(at::kHalf), 1e-5));
}

TEST_CASE("layer_norm refuses what does not fit") {
  const at::Tensor x = torch::zeros({2, 3});
  CHECK_THROWS_AS(ops::layer_norm(x, torch::ones({4}), torch::ones({4}), 1e-5), c10::Error);
  CHECK_THROWS_AS(ops::layer_norm(x.view({1, 2, 3}), torch::ones({3}), torch::ones({3}), 1e-5), c10::Error);
}

TEST_CASE("embedding adds word and place, and its gradients pass finite differences") {
  torch::manual_seed(2);
  for (const auto& [batch, length] : {std::pair{1, 1}, {3, 5}, {0, 4}, {2, 40}}) {
    INFO(batch << " x " << length);
    const at::Tensor tokens = torch::randint(0, 5, {batch, length}, at::kLong);
    const at::Tensor words = torch::randn({5, 3}, at::kDouble);
    const at::Tensor places = torch::randn({41, 3}, at::kDouble);
    const at::Tensor out = ops::embedding(tokens, words, places);
    CHECK(out.sizes() == at::IntArrayRef({batch * length, 3}));
    if (out.numel() > 0) {
      const std::int64_t last = tokens[batch - 1][length - 1].item<std::int64_t>();
      CHECK(out[batch * length - 1].equal(words[last] + places[length - 1]));
    }
    const at::Tensor factors = torch::randn_like(out);
    test::expect_slopes(
        [&](const std::vector<at::Tensor>& in) {
          return (ops::embedding(tokens, in[0], in[1]).square() * factors).sum();
        },
        {words, places});
  }
}

TEST_CASE("embedding refuses unknown tokens, long texts and mixed types") {
  const at::Tensor words = torch::zeros({5, 3});
  const at::Tensor places = torch::zeros({2, 3});
  for (const std::int64_t token : {-1, 5})
    CHECK_THROWS_AS(ops::embedding(torch::full({1, 2}, token, at::kLong), words, places), c10::Error);
  const at::Tensor tokens = torch::zeros({1, 3}, at::kLong);
  CHECK_THROWS_AS(ops::embedding(tokens, words, places), c10::Error);
  CHECK_THROWS_AS(ops::embedding(tokens.narrow(1, 0, 2), words.to(at::kHalf), places), c10::Error);
  CHECK_THROWS_AS(ops::embedding(tokens.narrow(1, 0, 2).to(at::kInt), words, places), c10::Error);
}

TEST_CASE("in-place cross-entropy leaves the gradient of its losses, and zeros in the columns beside") {
  torch::manual_seed(3);
  for (const auto& [rows, columns, classes] : {std::tuple{5, 8, 7}, {1, 1, 1}, {0, 4, 3}, {3, 40, 40}}) {
    INFO(rows << " x " << columns << ", " << classes << " classes");
    const at::Tensor logits = torch::randn({rows, columns}, at::kDouble);
    const at::Tensor targets = torch::randint(0, classes, {rows}, at::kLong);
    test::expect_slopes(
        [&](const std::vector<at::Tensor>& in) { return ops::cross_entropy_sum(in[0], targets, classes); },
        {logits});
    const at::Tensor leaf = logits.clone().requires_grad_();
    const at::Tensor loss = ops::cross_entropy_sum(leaf, targets, classes);
    loss.backward(torch::tensor(0.5, at::kDouble));
    const at::Tensor alone = ops::cross_entropy_losses(logits, classes, targets);
    at::Tensor gradient = logits.clone();
    at::Tensor losses = torch::empty({rows}, at::kDouble);
    ops::cross_entropy_in_place(gradient, classes, targets, torch::tensor(0.5, at::kDouble), losses);
    CHECK(test::is_near(gradient, leaf.grad(), 1e-12, 1e-12));
    CHECK(losses.equal(alone));
    CHECK(ops::sum_losses(losses).item<double>() == Approx(loss.item<double>()));
  }
}

TEST_CASE("cross-entropy refuses targets and classes that do not fit") {
  at::Tensor logits = torch::zeros({2, 4});
  at::Tensor losses = torch::zeros({2});
  const at::Tensor targets = torch::tensor({0, 3}, at::kLong);
  const at::Tensor seed = torch::ones({});
  CHECK_THROWS_AS(ops::cross_entropy_in_place(logits, 3, targets, seed, losses), c10::Error);
  CHECK_THROWS_AS(ops::cross_entropy_in_place(logits, 5, targets, seed, losses), c10::Error);
  CHECK_THROWS_AS(ops::cross_entropy_losses(logits, 0, targets), c10::Error);
  CHECK_THROWS_AS(ops::cross_entropy_sum(logits, targets, 3), c10::Error);
}
