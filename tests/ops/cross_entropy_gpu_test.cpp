// The in-place cross-entropy against the reference in double; a captured chain of all fused ops.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>

#include <cmath>

#include "differences.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/embedding.hpp"
#include "ops/layer_norm.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

const auto kTypes = {at::kHalf, at::kBFloat16, at::kFloat};
const auto kOptions = at::TensorOptions().device(at::kCUDA);

struct Results {
  at::Tensor gradient, losses;
};

Results in_place(const at::Tensor& logits, std::int64_t classes, const at::Tensor& targets, double seed) {
  at::Tensor gradient = logits.clone();
  at::Tensor losses = torch::empty({logits.size(0)}, kOptions);
  ops::cross_entropy_in_place(gradient, classes, targets, torch::full({}, seed, kOptions), losses);
  return {gradient, losses};
}

void expect_like_double(const at::Tensor& logits, std::int64_t classes, const at::Tensor& targets,
                        double seed) {
  const Results seen = in_place(logits, classes, targets, seed);
  const Results again = in_place(logits, classes, targets, seed);
  at::Tensor gradient = logits.to(at::kDouble);
  at::Tensor losses = torch::empty({logits.size(0)}, kOptions.dtype(at::kDouble));
  ops::reference::cross_entropy_in_place(gradient, classes, targets,
                                         torch::full({}, seed, kOptions.dtype(at::kDouble)), losses);
  CHECK(test::is_near(seen.gradient, gradient, test::rounding(logits.scalar_type()), 5e-6 * seed));
  CHECK(test::is_near(seen.losses, losses, 1e-5, 1e-5));
  CHECK(seen.gradient.narrow(1, classes, logits.size(1) - classes).eq(0).all().item<bool>());
  CHECK(seen.gradient.equal(again.gradient));
  CHECK(seen.losses.equal(again.losses));
  CHECK(test::is_near(ops::cross_entropy_losses(logits, classes, targets), losses, 1e-5, 1e-5));
  CHECK(ops::sum_losses(seen.losses).item<double>() ==
        Approx(losses.sum().item<double>()).epsilon(1e-5).margin(1e-5));
  const at::Tensor leaf = logits.detach().requires_grad_();
  const at::Tensor sum = ops::cross_entropy_sum(leaf, targets, classes);
  CHECK(sum.item<double>() == Approx(losses.sum().item<double>()).epsilon(1e-5).margin(1e-5));
  sum.backward(torch::full({}, seed, kOptions));
  CHECK(test::is_near(leaf.grad(), gradient, test::rounding(logits.scalar_type()), 5e-6 * seed));
}

}  // namespace

TEST_CASE("in-place cross-entropy is that of double, padded or not, at any width", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(1);
  for (const auto type : kTypes) {
    for (const auto& [columns, classes] : {std::pair{1, 1},
                                           {5, 5},
                                           {8, 5},
                                           {64, 33},
                                           {1000, 1000},
                                           {50257, 50257},
                                           {50304, 50257},
                                           {130000, 129999}}) {
      for (const std::int64_t rows : {0, 1, 5, 1000}) {
        if (rows == 1000 && columns > 60000) continue;
        INFO(toString(type) << " " << rows << " x " << columns << ", " << classes << " classes");
        const at::Tensor logits = (torch::randn({rows, columns}, kOptions) * 3).to(type);
        const at::Tensor targets = torch::randint(0, classes, {rows}, kOptions.dtype(at::kLong));
        expect_like_double(logits, classes, targets, 65536.0 / 8192);
      }
    }
  }
}

TEST_CASE("in-place cross-entropy of extreme and of unaligned logits", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(2);
  for (const auto type : kTypes) {
    INFO(toString(type));
    const at::Tensor targets = torch::arange(0, 9, kOptions.dtype(at::kLong)) % 4;
    expect_like_double(torch::full({9, 64}, -60000.0f, kOptions).to(type), 60, targets, 1.0);
    const at::Tensor spread = torch::linspace(-60000, 60000, 9 * 64, kOptions).view({9, 64}).to(type);
    expect_like_double(spread, 64, spread.argmax(1), 1.0);
    at::Tensor masked = torch::randn({9, 6000}, kOptions).to(type);
    masked.narrow(1, 4, 5996).fill_(-std::numeric_limits<float>::infinity());
    expect_like_double(masked, 6000, targets, 1.0);
    masked = torch::randn({9, 6000}, kOptions).to(type);
    masked.narrow(1, 0, 5000).fill_(-std::numeric_limits<float>::infinity());
    expect_like_double(masked, 6000, targets + 5000, 1.0);
    const at::Tensor odd = torch::randn({9 * 64 + 1}, kOptions).to(type).narrow(0, 1, 9 * 64).view({9, 64});
    expect_like_double(odd, 50, targets, 1.0);
    at::Tensor moved = torch::empty({9 * 64 + 1}, kOptions.dtype(type)).narrow(0, 1, 9 * 64).view({9, 64});
    moved.copy_(odd);
    at::Tensor losses = torch::empty({9}, kOptions);
    ops::cross_entropy_in_place(moved, 50, targets, torch::ones({}, kOptions), losses);
    CHECK(test::is_near(moved, in_place(odd, 50, targets, 1.0).gradient, 2e-3, 1e-5));
  }
}

TEST_CASE("a NaN logit or a target outside the classes makes the row NaN and no other", "[gpu]") {
  if (!test::gpu_here()) return;
  for (const auto type : kTypes) {
    for (const std::int64_t columns : {40, 41, 50304}) {
      const std::int64_t classes = columns - 3;
      const at::Tensor zeros = torch::zeros({6, columns}, kOptions).to(type);
      const at::Tensor targets = torch::zeros({6}, kOptions.dtype(at::kLong));
      const auto expect_row_3 = [&](const Results& seen) {
        CHECK(std::isnan(seen.losses[3].item<float>()));
        CHECK(at::isnan(seen.gradient[3].narrow(0, 0, classes)).all().item<bool>());
        CHECK(seen.gradient[3].narrow(0, classes, 3).eq(0).all().item<bool>());
        CHECK(at::isnan(seen.losses).sum().item<int>() == 1);
        CHECK(at::isnan(seen.gradient).sum().item<std::int64_t>() == classes);
      };
      for (const std::int64_t place : {std::int64_t{0}, std::int64_t{31}, classes - 1}) {
        at::Tensor logits = zeros.clone();
        logits[3][place] = std::numeric_limits<float>::quiet_NaN();
        expect_row_3(in_place(logits, classes, targets, 1.0));
      }
      at::Tensor padded = zeros.clone();
      padded.narrow(1, classes, 3).fill_(std::numeric_limits<float>::quiet_NaN());  // takes no part
      CHECK(at::isfinite(in_place(padded, classes, targets, 1.0).gradient).all().item<bool>());
      for (const std::int64_t target : {std::int64_t{-1}, classes, columns, std::int64_t{1} << 40}) {
        at::Tensor outside = targets.clone();
        outside[3] = target;
        expect_row_3(in_place(zeros, classes, outside, 1.0));
      }
    }
  }
}

TEST_CASE("a captured chain of embedding, layer_norm and cross-entropy replays to the same bits", "[gpu]") {
  if (!test::gpu_here()) return;
  const c10::cuda::CUDAStreamGuard on_own_stream(c10::cuda::getStreamFromPool());
  torch::manual_seed(3);
  const auto leaf = [](at::IntArrayRef shape, at::ScalarType type) {
    at::Tensor tensor = torch::randn(shape, kOptions).to(type).requires_grad_();
    tensor.mutable_grad() = torch::zeros(shape, kOptions.dtype(type));
    return tensor;
  };
  const std::vector<at::Tensor> parameters{leaf({512, 64}, at::kHalf), leaf({32, 64}, at::kHalf),
                                           leaf({64}, at::kFloat), leaf({64}, at::kFloat)};
  const at::Tensor tokens = torch::randint(0, 512, {4, 32}, kOptions.dtype(at::kLong));
  const at::Tensor targets = torch::randint(0, 60, {128}, kOptions.dtype(at::kLong));
  const at::Tensor seed = torch::ones({}, kOptions);
  at::Tensor losses = torch::empty({128}, kOptions);
  const auto step = [&] {
    for (const auto& parameter : parameters) parameter.grad().zero_();
    const at::Tensor x = ops::embedding(tokens, parameters[0], parameters[1]);
    const auto [out, passed] = ops::layer_norm(x, parameters[2], parameters[3], 1e-5);
    at::Tensor logits = out.detach().clone();
    ops::cross_entropy_in_place(logits, 60, targets, seed, losses);
    torch::autograd::backward({out, passed}, {logits, logits});
  };
  step();
  std::vector<at::Tensor> expected;
  for (const auto& parameter : parameters) expected.push_back(parameter.grad().clone());
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  step();
  graph.capture_end();
  for (const auto& parameter : parameters) parameter.grad().fill_(7);
  graph.replay();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    INFO(i);
    CHECK(parameters[i].grad().equal(expected[i]));
  }
  CHECK(expected[0].abs().sum().item<float>() > 0);
}
