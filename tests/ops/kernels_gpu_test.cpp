// The fused ops on a GPU against ATen in double.
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

#include <cuda_runtime_api.h>

#include "ops/cross_entropy.hpp"
#include "ops/normalise.hpp"
#include "support/catch.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

const auto kTypes = {at::kFloat, at::kHalf, at::kBFloat16};

/// Relative error of one rounding to `type`, and of the kernels' own float arithmetic.
double rounding(at::ScalarType type) {
  if (type == at::kHalf) return 6e-4;
  return type == at::kBFloat16 ? 4.5e-3 : 5e-6;
}

struct Result {
  at::Tensor loss;
  at::Tensor gradient;
};

Result fused(const at::Tensor& logits, const at::Tensor& targets, float scale) {
  const at::Tensor leaf = logits.detach().requires_grad_();
  const at::Tensor loss = ops::cross_entropy_sum(leaf, targets);
  loss.backward(torch::full({}, scale, loss.options()));
  return {loss.detach(), leaf.grad()};
}

Result in_double(const at::Tensor& logits, const at::Tensor& targets, double scale) {
  const at::Tensor log_probabilities = at::log_softmax(logits.to(at::kDouble), 1);
  const at::Tensor places = targets.unsqueeze(1);
  const at::Tensor loss = -log_probabilities.gather(1, places).sum();
  at::Tensor gradient = log_probabilities.exp();
  gradient.scatter_add_(1, places, torch::full(places.sizes(), -1.0, gradient.options()));
  return {loss, gradient.mul_(scale)};
}

void expect_like_double(const at::Tensor& logits, const at::Tensor& targets, float scale) {
  const Result seen = fused(logits, targets, scale);
  const Result expected = in_double(logits, targets, scale);
  CHECK(seen.loss.scalar_type() == at::kFloat);
  // A row's loss is right to the last digit of a float near 1, also where it is 0.
  const double margin = 1e-5 + 2e-9 * static_cast<double>(logits.size(0));
  CHECK(seen.loss.item<double>() == Approx(expected.loss.item<double>()).epsilon(1e-5).margin(margin));
  CHECK(seen.gradient.scalar_type() == logits.scalar_type());
  const at::Tensor error = (seen.gradient.to(at::kDouble) - expected.gradient).abs_();
  const double relative = rounding(logits.scalar_type());
  CHECK((error <= expected.gradient.abs().mul_(relative).add_(5e-6 * scale)).all().item<bool>());
}

}  // namespace

TEST_CASE("fused cross-entropy and its gradient are those of double, from one class to 50,257", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(1);
  for (const auto type : kTypes) {
    for (const std::int64_t classes : {1, 10, 33, 1000, 50257}) {
      for (const std::int64_t rows : {1, 7, 70001}) {
        const std::int64_t used = classes == 50257 ? std::min<std::int64_t>(rows, 501) : rows;
        INFO(toString(type) << " [" << used << ", " << classes << "]");
        const auto options = at::TensorOptions().device(at::kCUDA);
        const at::Tensor logits = (torch::randn({used, classes}, options) * 3).to(type);
        const at::Tensor targets = torch::randint(0, classes, {used}, options.dtype(at::kLong));
        expect_like_double(logits, targets, 65536.0f / 70001);
        expect_like_double(logits, targets, 0.25f);
      }
    }
  }
}

TEST_CASE("extreme logits and views: equal, masked by -inf, near the largest half, transposed", "[gpu]") {
  if (!test::gpu_here()) return;
  const auto options = at::TensorOptions().device(at::kCUDA);
  for (const auto type : kTypes) {
    INFO(toString(type));
    const at::Tensor targets = torch::arange(0, 9, options.dtype(at::kLong)) % 4;
    expect_like_double(torch::zeros({9, 4}, options).to(type), targets, 1.0f);
    expect_like_double(torch::full({9, 4}, -60000.0f, options).to(type), targets, 1.0f);
    const at::Tensor spread = torch::linspace(-60000, 60000, 36, options).view({9, 4}).to(type);
    expect_like_double(spread, spread.argmax(1), 1.0f);
    at::Tensor masked = torch::randn({9, 70}, options).to(type);
    masked.narrow(1, 4, 66).fill_(-std::numeric_limits<float>::infinity());
    expect_like_double(masked, targets, 1.0f);
    expect_like_double(torch::randn({4, 9}, options).to(type).t(), targets, 1.0f);
  }
}

TEST_CASE("the fused loss gives the same bits twice", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(2);
  const auto options = at::TensorOptions().device(at::kCUDA);
  const at::Tensor logits = torch::randn({5003, 129}, options).to(at::kHalf);
  const at::Tensor targets = torch::randint(0, 129, {5003}, options.dtype(at::kLong));
  const Result once = fused(logits, targets, 0.5f);
  const Result again = fused(logits, targets, 0.5f);
  CHECK(once.loss.equal(again.loss));
  CHECK(once.gradient.equal(again.gradient));
}

TEST_CASE("a NaN logit and a target outside the classes make the fused loss NaN; no rows make it zero",
          "[gpu]") {
  if (!test::gpu_here()) return;
  const auto options = at::TensorOptions().device(at::kCUDA);
  for (const auto type : kTypes) {
    const at::Tensor targets = torch::zeros({6}, options.dtype(at::kLong));
    for (const std::int64_t place : {0, 31, 32, 39}) {
      at::Tensor logits = torch::zeros({6, 40}, options).to(type);
      logits[3][place] = std::numeric_limits<float>::quiet_NaN();
      const Result seen = fused(logits, targets, 1.0f);
      CHECK(std::isnan(seen.loss.item<float>()));
      CHECK(at::isnan(seen.gradient[3]).all().item<bool>());
      CHECK(at::isfinite(seen.gradient[2]).all().item<bool>());
    }
    for (const std::int64_t target : {-1, 40, -100}) {
      at::Tensor outside = targets.clone();
      outside[5] = target;
      const at::Tensor logits = torch::zeros({6, 40}, options).to(type);
      CHECK(std::isnan(ops::cross_entropy_sum(logits, outside).item<float>()));
    }
    const Result none = fused(torch::zeros({0, 40}, options).to(type), targets.narrow(0, 0, 0), 1.0f);
    CHECK(none.loss.item<float>() == 0);
    CHECK(none.gradient.size(0) == 0);
  }
}

TEST_CASE("more than 2^31 logits in one call", "[gpu]") {
  if (!test::gpu_here()) return;
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  REQUIRE(cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess);
  if (free_bytes < (std::size_t{20} << 30)) {
    WARN("less than 20 GiB of device memory are free: not run");
    return;
  }
  constexpr std::int64_t kRows = 70001;
  constexpr std::int64_t kClasses = 50257;
  const auto options = at::TensorOptions().device(at::kCUDA);
  torch::manual_seed(3);
  at::Tensor logits = torch::zeros({kRows, kClasses}, options.dtype(at::kBFloat16));
  const at::Tensor targets = torch::randint(0, kClasses, {kRows}, options.dtype(at::kLong));
  for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 3}) logits.narrow(0, row, 3).normal_();
  const Result seen = fused(logits, targets, 1.0f);
  for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 3, kRows - 100}) {
    const Result expected = in_double(logits.narrow(0, row, 3), targets.narrow(0, row, 3), 1.0);
    const at::Tensor error = (seen.gradient.narrow(0, row, 3).to(at::kDouble) - expected.gradient).abs();
    CHECK((error <= expected.gradient.abs() * rounding(at::kBFloat16) + 5e-6).all().item<bool>());
  }
  CHECK(seen.loss.item<double>() == Approx(kRows * std::log(double{kClasses})).epsilon(1e-3));
}

TEST_CASE("the normalise kernel follows double for every pair of types and any shape", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(4);
  const auto options = at::TensorOptions().device(at::kCUDA);
  const std::vector<std::vector<std::int64_t>> shapes{{3, 2, 5, 7},   {1, 1, 28, 28}, {7, 3, 1, 1},
                                                      {70001, 1, 33}, {5, 3},         {2, 3, 255}};
  for (const auto& shape : shapes) {
    const at::Tensor scale = torch::rand({shape[1]}, options) + 0.5;
    const at::Tensor shift = torch::randn({shape[1]}, options);
    std::vector<std::int64_t> per_channel(shape.size(), 1);
    per_channel[1] = shape[1];
    const at::Tensor bytes = torch::randint(0, 256, shape, options).to(at::kByte);
    const at::Tensor floats = torch::randn(shape, options) * 100;
    for (const at::Tensor& in : {bytes, floats, floats.transpose(0, -1).contiguous().transpose(0, -1)}) {
      const at::Tensor wide = in.to(at::kDouble) * scale.to(at::kDouble).view(per_channel);
      const at::Tensor expected = wide + shift.to(at::kDouble).view(per_channel);
      for (const auto type : kTypes) {
        const at::Tensor out = ops::normalise(in, scale, shift, type);
        INFO(toString(in.scalar_type()) << " " << in.sizes() << " to " << toString(type));
        CHECK(out.scalar_type() == type);
        const at::Tensor error = (out.to(at::kDouble) - expected).abs();
        CHECK((error <= expected.abs() * rounding(type) + 1e-5).all().item<bool>());
      }
    }
  }
  CHECK(ops::normalise(torch::zeros({0, 2, 3}, options), torch::ones({2}, options), torch::ones({2}, options),
                       at::kHalf)
            .size(0) == 0);
}
