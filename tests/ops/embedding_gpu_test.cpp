// The fused embedding against the reference in double, on the same inputs.
#include <torch/torch.h>

#include "differences.hpp"
#include "ops/embedding.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

const auto kTypes = {at::kHalf, at::kBFloat16, at::kFloat};
const auto kOptions = at::TensorOptions().device(at::kCUDA);

struct Results {
  at::Tensor out, words, places;
};

template <class Function>
Results run(Function embedding, const at::Tensor& tokens, const at::Tensor& words, const at::Tensor& places,
            const at::Tensor& d_out, double existing = 0) {
  at::Tensor a = words.detach().requires_grad_();
  at::Tensor b = places.detach().requires_grad_();
  if (existing != 0) {
    a.mutable_grad() = torch::full_like(words, existing);
    b.mutable_grad() = torch::full_like(places, existing);
  }
  const at::Tensor out = embedding(tokens, a, b);
  out.backward(d_out);
  return {out.detach(), a.grad(), b.grad()};
}

/// Against double; the reference's own sums are exact enough there, so one rounding is all that may differ.
void expect_like_double(const at::Tensor& tokens, std::int64_t vocabulary, std::int64_t columns,
                        at::ScalarType type, double existing) {
  const at::Tensor words = torch::randn({vocabulary, columns}, kOptions).to(type);
  const at::Tensor places = torch::randn({tokens.size(1) + 3, columns}, kOptions).to(type);
  const at::Tensor d_out = torch::randn({tokens.numel(), columns}, kOptions).to(type);
  const Results seen = run(ops::embedding, tokens, words, places, d_out, existing);
  const Results again = run(ops::embedding, tokens, words, places, d_out, existing);
  const Results expected = run(ops::reference::embedding, tokens, words.to(at::kDouble),
                               places.to(at::kDouble), d_out.to(at::kDouble), existing);
  const double relative = test::rounding(type);
  CHECK(seen.out.scalar_type() == type);
  CHECK(test::is_near(seen.out, expected.out, relative, 1e-5));
  CHECK(test::is_near(seen.words, expected.words, relative, 5e-4));
  CHECK(test::is_near(seen.places, expected.places, relative, 1e-4));
  CHECK(seen.words.equal(again.words));
  CHECK(seen.places.equal(again.places));
}

at::Tensor random_tokens(std::int64_t batch, std::int64_t length, std::int64_t vocabulary) {
  return torch::randint(0, vocabulary, {batch, length}, kOptions.dtype(at::kLong));
}

}  // namespace

TEST_CASE("fused embedding and its gradients are those of double, at any width and vocabulary", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(1);
  for (const auto type : kTypes) {
    for (const std::int64_t columns : {1, 7, 33, 64, 768, 1000, 1600}) {
      for (const std::int64_t vocabulary : {5, 257, 50304}) {
        if (vocabulary == 50304 && columns > 64) continue;  // 768 below
        INFO(toString(type) << " " << vocabulary << " x " << columns);
        expect_like_double(random_tokens(5, 200, vocabulary), vocabulary, columns, type, 0);
        expect_like_double(random_tokens(1, 5, vocabulary), vocabulary, columns, type, 3);
      }
    }
    expect_like_double(random_tokens(9, 333, 50304), 50304, 768, type, 0.25);
    expect_like_double(random_tokens(0, 4, 5), 5, 64, type, 0);
    expect_like_double(random_tokens(0, 4, 5), 5, 64, type, 2);
  }
}

TEST_CASE("one token for every place, and a skewed choice, are summed like any other", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(2);
  for (const auto type : kTypes) {
    INFO(toString(type));
    for (const std::int64_t token : {0, 3, 256})
      expect_like_double(torch::full({7, 143}, token, kOptions.dtype(at::kLong)), 257, 33, type, 0.5);
    const at::Tensor skewed = (torch::rand({16, 512}, kOptions).pow(6) * 257).to(at::kLong);
    expect_like_double(skewed, 257, 768, type, 0.5);
    // Runs that begin or end at a chunk's border of 32 places.
    const at::Tensor even = torch::arange(0, 640, kOptions.dtype(at::kLong)).div(64, "floor").view({2, 320});
    expect_like_double(even, 10, 64, type, 0);
    expect_like_double(torch::arange(0, 640, kOptions.dtype(at::kLong)).div(31, "floor").view({2, 320}), 21,
                       64, type, 0);
  }
}

TEST_CASE("rows of tokens that do not occur keep their bits", "[gpu]") {
  if (!test::gpu_here()) return;
  at::Tensor words = torch::zeros({100, 64}, kOptions).to(at::kHalf).requires_grad_();
  const at::Tensor places = torch::zeros({8, 64}, kOptions).to(at::kHalf);
  words.mutable_grad() =
      torch::full({100, 64}, std::numeric_limits<float>::quiet_NaN(), kOptions).to(at::kHalf);
  words.mutable_grad().narrow(0, 40, 2).zero_();
  const at::Tensor tokens = 40 + torch::arange(0, 8, kOptions.dtype(at::kLong)).view({1, 8}) % 2;
  ops::embedding(tokens, words, places).sum().backward();
  CHECK(words.grad().narrow(0, 40, 2).eq(4).all().item<bool>());
  CHECK(at::isnan(words.grad()).sum().item<std::int64_t>() == 98 * 64);
}

TEST_CASE("a token outside the vocabulary makes its row NaN and touches no weight", "[gpu]") {
  if (!test::gpu_here()) return;
  for (const auto type : kTypes) {
    for (const std::int64_t columns : {7, 64}) {
      for (const std::int64_t outside : {std::int64_t{-1}, std::int64_t{5}, std::int64_t{1} << 40}) {
        at::Tensor tokens = torch::ones({3, 50}, kOptions.dtype(at::kLong));
        tokens[1] = outside;
        const at::Tensor words = torch::ones({5, columns}, kOptions).to(type);
        const at::Tensor d_out = torch::ones({150, columns}, kOptions).to(type);
        const Results seen =
            run(ops::embedding, tokens, words, torch::ones({50, columns}, kOptions).to(type), d_out);
        CHECK(at::isnan(seen.out.narrow(0, 50, 50)).all().item<bool>());
        CHECK(seen.out.narrow(0, 100, 50).eq(2).all().item<bool>());
        CHECK(seen.out.narrow(0, 0, 50).eq(2).all().item<bool>());
        CHECK(seen.words[1].eq(100).all().item<bool>());
        CHECK(seen.words.sum().item<double>() == 100.0 * static_cast<double>(columns));
      }
    }
  }
}
