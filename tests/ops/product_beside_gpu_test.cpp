// Products whose epilogue runs beside them, against ATen in double.
#include <ATen/cuda/CUDAContext.h>
#include <torch/torch.h>

#include "ops/product_beside.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

bool hopper_here() {
  if (!test::gpu_here()) return false;
  if (at::cuda::getCurrentDeviceProperties()->major == 9) return true;
  WARN("no GPU of compute capability 9.0 here: not run");
  return false;
}

struct Operands {
  at::Tensor x, weight, bias, d_out, out_weight, before;
  at::Tensor out, hidden, d_before, sums;
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
             random({rows, columns}, 2),
             {},
             {},
             {},
             {}};
  o.out = at::full_like(o.before, 7);
  o.hidden = at::full_like(o.before, 7);
  o.d_before = at::full_like(o.before, 7);
  o.sums = random({columns}, 1);
  return o;
}

void run(Operands& o, bool adds) {
  ops::product_gelu_slope(o.d_out, o.out_weight, o.before, o.d_before, o.sums, adds);
  ops::product_bias(o.x, o.weight, o.bias, o.out);
  ops::product_bias_gelu(o.x, o.weight, o.bias, o.before, o.hidden);
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
    for (const auto& [rows, inner, columns] : {std::tuple{1, 8, 8},
                                               {128, 64, 192},
                                               {129, 72, 200},
                                               {257, 768, 192},
                                               {1000, 200, 1000},
                                               {5000, 1024, 4096}}) {
      INFO(toString(type) << " " << rows << " x " << inner << " x " << columns);
      Operands o = make(rows, inner, columns, type);
      const at::Tensor before = o.before.to(at::kDouble), sums = o.sums.to(at::kDouble);
      run(o, true);
      const at::Tensor product =
          o.x.to(at::kDouble).mm(o.weight.to(at::kDouble).t()) + o.bias.to(at::kDouble);
      expect_near(o.out, product, inner);
      expect_near(o.before, product, inner);
      expect_near(o.hidden, at::gelu(o.before.to(at::kDouble), "tanh"), inner);
      const at::Tensor slope =
          at::gelu_backward(o.d_out.to(at::kDouble).mm(o.out_weight.to(at::kDouble)), before, "tanh");
      expect_near(o.d_before, slope, inner);
      const double unit = type == at::kHalf ? 0x1p-11 : 0x1p-8;
      const at::Tensor expected = sums + slope.sum(0);
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
    for (at::Tensor* tensor : {&o.before, &o.out, &o.hidden, &o.d_before, &o.sums}) *tensor = tensor->clone();
    run(o, false);
    runs.push_back(o);
  }
  for (const Operands& o : runs) {
    CHECK(at::equal(o.out, runs[0].out));
    CHECK(at::equal(o.hidden, runs[0].hidden));
    CHECK(at::equal(o.d_before, runs[0].d_before));
    CHECK(at::equal(o.sums, runs[0].sums));
  }
}

TEST_CASE("a product beside its epilogue refuses sizes that it cannot take", "[gpu]") {
  if (!hopper_here()) return;
  Operands ragged = make(16, 12, 64, at::kHalf);
  CHECK_THROWS_WITH(ops::product_bias(ragged.x, ragged.weight, ragged.bias, ragged.out),
                    test::contains("[16, 12]"));
  Operands o = make(16, 64, 64, at::kHalf);
  CHECK_THROWS_WITH(ops::product_bias(o.x, o.weight, o.bias, ragged.x), test::contains("does not fit"));
}
