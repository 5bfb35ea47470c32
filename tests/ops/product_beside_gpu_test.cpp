// Products whose epilogue runs beside them, against ATen in double.
#include <torch/torch.h>

#include <limits>

#include "ops/product_beside.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

bool hopper_here() {
  if (!test::gpu_here()) return false;
  if (ops::runs_beside(at::empty({1 << 12, 8}, at::kCUDA), 1 << 11)) return true;
  WARN("no GPU of compute capability 9.0 here, or no build for it: not run");
  return false;
}

struct Operands {
  at::Tensor x, weight, bias, d_out, out_weight, factor;
  at::Tensor out, hidden, slope, product, sums;
};

/// Rows, inner and columns; d_out and out_weight have `inner` columns and rows.
Operands make(std::int64_t rows, std::int64_t inner, std::int64_t columns, at::ScalarType type) {
  const auto random = [&](at::IntArrayRef shape, double scale) {
    return (torch::randn(shape, at::TensorOptions().device(at::kCUDA)) * scale).to(type);
  };
  Operands o{random({rows, inner}, 1),
             random({columns, inner}, 0.1),
             random({columns}, 1),
             random({rows, inner}, 1),
             random({inner, columns}, 0.1),
             random({rows, columns}, 1),
             {},
             {},
             {},
             {},
             {}};
  for (at::Tensor* tensor : {&o.out, &o.hidden, &o.slope, &o.product}) *tensor = at::full_like(o.factor, 7);
  o.sums = random({columns}, 1);
  return o;
}

void run(Operands& o, bool adds) {
  ops::product_times(o.d_out, o.out_weight, o.factor, o.product, o.sums, adds);
  ops::product_bias(o.x, o.weight, o.bias, o.out);
  ops::product_bias_gelu(o.x, o.weight, o.bias, o.slope, o.hidden);
}

/// Of every element: two roundings of it, and float sums of `inner` terms.
void expect_near(const at::Tensor& seen, const at::Tensor& expected, std::int64_t inner) {
  const double unit = seen.scalar_type() == at::kHalf ? 0x1p-11 : 0x1p-8;
  const double size = 0.1 * std::sqrt(static_cast<double>(inner)) + 1;  // of a product and a bias
  CHECK(((seen.to(at::kDouble) - expected).abs() / (expected.abs() + size)).max().item<double>() < 3 * unit);
}

}  // namespace

TEST_CASE("products beside their epilogues are ATen's, for ragged tiles and in both types", "[gpu]") {
  if (!hopper_here()) return;
  torch::manual_seed(1);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    for (const auto& [rows, inner, columns] :
         {std::tuple{1, 8, 8},
          {128, 64, 192},
          {129, 72, 200},
          {257, 768, 192},
          {1000, 200, 1000},
          {700, 1280, 5120},  // two blocks of columns, of 14 and 13 tiles
          {5000, 1024, 4096}}) {
      INFO(toString(type) << " " << rows << " x " << inner << " x " << columns);
      Operands o = make(rows, inner, columns, type);
      const at::Tensor sums = o.sums.to(at::kDouble);
      run(o, true);
      const at::Tensor linear = o.x.to(at::kDouble).mm(o.weight.to(at::kDouble).t()) + o.bias.to(at::kDouble);
      expect_near(o.out, linear, inner);
      // GELU and its slope are those of the rounded input.
      const at::Tensor in = o.out.to(at::kDouble);
      expect_near(o.hidden, at::gelu(in, "tanh"), 1);
      expect_near(o.slope, at::gelu_backward(at::ones_like(in), in, "tanh"), 1);
      const at::Tensor product =
          o.d_out.to(at::kDouble).mm(o.out_weight.to(at::kDouble)) * o.factor.to(at::kDouble);
      expect_near(o.product, product, inner);
      const double unit = type == at::kHalf ? 0x1p-11 : 0x1p-8;
      const at::Tensor expected = sums + product.sum(0);
      const double size = 0.1 * std::sqrt(static_cast<double>(inner * rows)) + 1;
      CHECK(((o.sums.to(at::kDouble) - expected).abs() / (expected.abs() + size)).max().item<double>() <
            3 * unit);
    }
  }
}

TEST_CASE("products beside their epilogues give the same bits each time", "[gpu]") {
  if (!hopper_here()) return;
  torch::manual_seed(2);
  const Operands first = make(3000, 512, 2048, at::kHalf);
  std::vector<Operands> runs;
  for (int i = 0; i < 5; ++i) {
    Operands o = first;
    for (at::Tensor* tensor : {&o.out, &o.hidden, &o.slope, &o.product, &o.sums}) *tensor = tensor->clone();
    run(o, false);
    runs.push_back(o);
  }
  for (const Operands& o : runs) {
    CHECK(at::equal(o.out, runs[0].out));
    CHECK(at::equal(o.hidden, runs[0].hidden));
    CHECK(at::equal(o.slope, runs[0].slope));
    CHECK(at::equal(o.product, runs[0].product));
    CHECK(at::equal(o.sums, runs[0].sums));
  }
}

TEST_CASE("sums over rows of products beside their epilogues replace or add, and no rows are zero", "[gpu]") {
  if (!hopper_here()) return;
  torch::manual_seed(3);
  Operands o = make(300, 64, 256, at::kHalf);
  Operands added = o;
  added.sums = at::ones_like(o.sums);
  run(o, false);
  run(added, true);
  const at::Tensor expected = o.product.to(at::kDouble).sum(0);
  CHECK(at::allclose(o.sums.to(at::kDouble), expected, 2e-3, 2e-2));
  CHECK(at::allclose(added.sums.to(at::kDouble), expected + 1, 2e-3, 2e-2));
  Operands none = make(0, 64, 256, at::kHalf);
  run(none, false);
  CHECK(none.sums.abs().max().item<float>() == 0);
}

TEST_CASE("products beside their epilogues pass on what is not finite, so that a loss scale sees it",
          "[gpu]") {
  if (!hopper_here()) return;
  torch::manual_seed(4);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    Operands o = make(200, 64, 256, at::kHalf);
    o.x[7][3] = bad;
    o.d_out[7][3] = bad;
    run(o, false);
    for (const at::Tensor& result : {o.out, o.product}) {
      CHECK_FALSE(result[7].isfinite().any().item<bool>());
      CHECK(result[8].isfinite().all().item<bool>());
    }
    CHECK_FALSE(o.sums.isfinite().any().item<bool>());
  }
  Operands large = make(200, 64, 256, at::kHalf);  // sums beyond half
  large.d_out.fill_(6e4);
  large.out_weight.fill_(1);
  run(large, false);
  CHECK_FALSE(large.product.isfinite().any().item<bool>());
}

TEST_CASE("a product beside its epilogue refuses sizes, types and addresses that it cannot take", "[gpu]") {
  if (!hopper_here()) return;
  Operands ragged = make(16, 12, 64, at::kHalf);
  CHECK_THROWS_WITH(ops::product_bias(ragged.x, ragged.weight, ragged.bias, ragged.out),
                    test::contains("[16, 12]"));
  Operands o = make(16, 64, 64, at::kHalf);
  CHECK_THROWS_WITH(ops::product_bias(o.x, o.weight, o.bias, ragged.x), test::contains("does not fit"));
  CHECK_THROWS_WITH(ops::product_bias(o.x, o.weight, ragged.x, o.out),
                    test::contains("the bias is [16, 12]"));
  const auto single = make(16, 64, 64, at::kFloat);
  CHECK_THROWS_WITH(ops::product_bias(single.x, single.weight, single.bias, single.out),
                    test::contains("takes half and bfloat16"));
  CHECK_THROWS_WITH(ops::product_bias(o.x, o.weight.t(), o.bias, o.out),
                    test::contains("must be contiguous"));
  CHECK_THROWS_WITH(
      ops::product_times(o.d_out, o.out_weight, o.factor, o.product, o.sums.to(at::kFloat), true),
      test::contains("do not fit"));
  const at::Tensor shifted = at::zeros({16 * 64 + 1}, o.x.options()).narrow(0, 1, 16 * 64).view({16, 64});
  CHECK_THROWS_WITH(ops::product_bias(shifted, o.weight, o.bias, o.out), test::contains("16 bytes"));
}
