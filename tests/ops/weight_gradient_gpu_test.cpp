// The gradients of a linear layer's weight and bias in one kernel, against ATen in double.
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "ops/product_beside.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

bool hopper_here() {
  if (!test::gpu_here()) return false;
  if (ops::sums_beside(at::empty({1 << 14, 8}, at::kCUDA), 8)) return true;
  WARN("no GPU of compute capability 9.0 here, or no build for it: not run");
  return false;
}

struct Operands {
  at::Tensor d_out, x, d_weight, d_bias;
};

Operands make(std::int64_t rows, std::int64_t out, std::int64_t in, at::ScalarType type) {
  const auto random = [&](at::IntArrayRef shape) {
    return torch::randn(shape, at::TensorOptions().device(at::kCUDA)).to(type);
  };
  return {random({rows, out}), random({rows, in}), random({out, in}), random({out})};
}

void run(const Operands& o, bool adds) {
  ops::weight_gradient_beside(o.d_out, o.x, o.d_weight, adds, o.d_bias, adds);
}

/// Of every element: one rounding of it, and float sums of `terms` terms of size 1, 16 at a time.
void expect_near(const at::Tensor& seen, const at::Tensor& expected, std::int64_t terms) {
  const double unit = seen.scalar_type() == at::kHalf ? 0x1p-11 : 0x1p-8;
  const auto count = static_cast<double>(terms);
  const double sums = 1e-6 + 0x1p-24 * std::sqrt(count) * (count / 16 + 1);
  const at::Tensor error = (seen.to(at::kDouble) - expected).abs() - 1.01 * unit * expected.abs();
  CHECK(error.max().item<double>() < sums);
}

}  // namespace

TEST_CASE("a weight's gradient beside its bias's is ATen's, for ragged tiles and in both types", "[gpu]") {
  if (!hopper_here()) return;
  torch::manual_seed(1);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    for (const auto& [rows, out, in] : {std::tuple{1, 8, 8},
                                        {64, 128, 256},
                                        {65, 136, 264},
                                        {1000, 1000, 520},
                                        {8192, 768, 768},   // many parts of few tiles
                                        {5000, 2304, 768},  // whole parts and a rest
                                        {20000, 768, 3072},
                                        {700, 5120, 1280}}) {  // more tiles than workers
      INFO(toString(type) << " " << rows << " x " << out << " x " << in);
      const Operands o = make(rows, out, in, type);
      const at::Tensor d_out = o.d_out.to(at::kDouble);
      const at::Tensor weight = d_out.t().mm(o.x.to(at::kDouble)), bias = d_out.sum(0);
      const at::Tensor weight_before = o.d_weight.to(at::kDouble), bias_before = o.d_bias.to(at::kDouble);
      run(o, true);
      expect_near(o.d_weight, weight_before + weight, rows);
      expect_near(o.d_bias, bias_before + bias, rows);
      run(o, false);
      expect_near(o.d_weight, weight, rows);
      expect_near(o.d_bias, bias, rows);
    }
  }
}

TEST_CASE("a weight's gradient beside its bias's has the same bits each time", "[gpu]") {
  if (!hopper_here()) return;
  torch::manual_seed(2);
  const Operands first = make(30000, 2304, 768, at::kHalf);
  run(first, false);
  const at::Tensor d_weight = first.d_weight.clone(), d_bias = first.d_bias.clone();
  for (int i = 0; i < 10; ++i) {
    run(first, false);
    CHECK(at::equal(first.d_weight, d_weight));
    CHECK(at::equal(first.d_bias, d_bias));
  }
}

TEST_CASE("a weight's gradient beside its bias's passes on what is not finite", "[gpu]") {
  if (!hopper_here()) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const Operands o = make(300, 512, 256, at::kHalf);
    o.d_out[77][300] = bad;
    run(o, false);
    CHECK_FALSE(o.d_weight[300].isfinite().any().item<bool>());
    CHECK_FALSE(o.d_bias[300].isfinite().any().item<bool>());
    CHECK(o.d_weight[301].isfinite().all().item<bool>());
    CHECK(o.d_bias[301].isfinite().all().item<bool>());
  }
}

TEST_CASE("a weight's gradient beside its bias's refuses sizes, types and addresses that it cannot take",
          "[gpu]") {
  if (!hopper_here()) return;
  const Operands o = make(16, 64, 64, at::kHalf);
  const Operands ragged = make(16, 12, 64, at::kHalf);
  CHECK_THROWS_WITH(run(ragged, true), test::contains("[16, 12]"));
  CHECK_THROWS_WITH(run(make(0, 64, 64, at::kHalf), true), test::contains("[0, 64]"));
  CHECK_THROWS_WITH(run(make(16, 64, 64, at::kFloat), true), test::contains("takes half and bfloat16"));
  CHECK_THROWS_WITH(run({o.d_out, ragged.x.narrow(0, 0, 8), o.d_weight, o.d_bias}, true),
                    test::contains("the input is [8, 64]"));
  CHECK_THROWS_WITH(run({o.d_out, o.x.t(), o.d_weight, o.d_bias}, true),
                    test::contains("the input is [64, 16]"));
  CHECK_THROWS_WITH(run({o.d_out, o.x, o.d_weight, ragged.d_bias}, true),
                    test::contains("the bias's gradient is [12]"));
  CHECK_THROWS_WITH(run({o.d_out, o.x, o.d_weight.t(), o.d_bias}, true),
                    test::contains("must be contiguous"));
  const at::Tensor shifted = at::zeros({16 * 64 + 1}, o.x.options()).narrow(0, 1, 16 * 64).view({16, 64});
  CHECK_THROWS_WITH(run({o.d_out, shifted, o.d_weight, o.d_bias}, true), test::contains("16 bytes"));
}
