// The fused layer normalisation against the reference in double, on the same inputs.
#include <torch/torch.h>

#include "differences.hpp"
#include "ops/layer_norm.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

const auto kTypes = {at::kHalf, at::kBFloat16, at::kFloat};
const auto kOptions = at::TensorOptions().device(at::kCUDA);

struct Inputs {
  at::Tensor x, weight, bias, d_out, d_passed;
};

struct Results {
  at::Tensor out, dx, dweight, dbias;
};

Inputs random_inputs(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  return {(torch::randn({rows, columns}, kOptions) * 2 + 0.5).to(type), torch::randn({columns}, kOptions),
          torch::randn({columns}, kOptions), torch::randn({rows, columns}, kOptions).to(type),
          torch::randn({rows, columns}, kOptions).to(type)};
}

Inputs to_double(const Inputs& in) {
  return {in.x.to(at::kDouble), in.weight.to(at::kDouble), in.bias.to(at::kDouble), in.d_out.to(at::kDouble),
          in.d_passed.to(at::kDouble)};
}

template <class Function>
Results run(Function layer_norm, const Inputs& in, bool add_to_existing = false) {
  const at::Tensor x = in.x.detach().requires_grad_();
  at::Tensor weight = in.weight.detach().requires_grad_();
  at::Tensor bias = in.bias.detach().requires_grad_();
  if (add_to_existing) {
    weight.mutable_grad() = torch::full_like(in.weight, 0.5);
    bias.mutable_grad() = torch::full_like(in.bias, -0.5);
  }
  const auto [out, passed] = layer_norm(x, weight, bias, 1e-5);
  torch::autograd::backward({out, passed}, {in.d_out, in.d_passed});
  return {out.detach(), x.grad(), weight.grad(), bias.grad()};
}

void expect_like_double(const Inputs& in) {
  const Results seen = run(ops::layer_norm, in);
  const Results expected = run(ops::reference::layer_norm, to_double(in));
  const double relative = test::rounding(in.x.scalar_type());
  // A single column has no variance: 1 / sqrt(epsilon) then magnifies the last digit.
  const double absolute = in.x.size(1) == 1 ? 3e-4 : 3e-5;
  CHECK(seen.out.scalar_type() == in.x.scalar_type());
  CHECK(test::is_near(seen.out, expected.out, relative, absolute));
  CHECK(test::is_near(seen.dx, expected.dx, relative, absolute));
  CHECK(test::is_near(seen.dweight, expected.dweight, 1e-5, 2e-4));
  CHECK(test::is_near(seen.dbias, expected.dbias, 1e-5, 2e-4));
}

}  // namespace

TEST_CASE("fused layer_norm and its gradients are those of double, at any width", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(1);
  for (const auto type : kTypes) {
    for (const std::int64_t columns : {1, 7, 33, 64, 256, 768, 1000, 1024, 1280, 1600, 2048, 5000}) {
      for (const std::int64_t rows : {0, 1, 5, 1000}) {
        INFO(toString(type) << " " << rows << " x " << columns);
        expect_like_double(random_inputs(rows, columns, type));
      }
    }
    expect_like_double(random_inputs(5003, 768, type));  // several rows a warp
    expect_like_double(random_inputs(3001, 33, type));
  }
}

TEST_CASE("fused layer_norm takes rows that are not 16-byte aligned, and views", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(2);
  for (const auto type : kTypes) {
    INFO(toString(type));
    Inputs in = random_inputs(5, 768, type);
    in.x = torch::randn({5 * 768 + 1}, kOptions).to(type).narrow(0, 1, 5 * 768).view({5, 768});
    expect_like_double(in);
    in.x = torch::randn({768, 5}, kOptions).to(type).t();
    in.d_out = torch::randn({768, 5}, kOptions).to(type).t();
    expect_like_double(in);
  }
}

TEST_CASE("fused layer_norm adds into gradients that are there, with the same bits twice", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(3);
  for (const std::int64_t columns : {33, 768, 1600}) {
    INFO(columns);
    const Inputs in = random_inputs(2999, columns, at::kHalf);
    const Results alone = run(ops::layer_norm, in);
    const Results once = run(ops::layer_norm, in, /*add_to_existing=*/true);
    const Results again = run(ops::layer_norm, in, /*add_to_existing=*/true);
    CHECK(once.dweight.equal(alone.dweight + 0.5));
    CHECK(once.dbias.equal(alone.dbias - 0.5));
    CHECK(once.out.equal(again.out));
    CHECK(once.dx.equal(again.dx));
    CHECK(once.dweight.equal(again.dweight));
    CHECK(once.dbias.equal(again.dbias));
  }
  const Results none = run(ops::layer_norm, random_inputs(0, 64, at::kHalf), /*add_to_existing=*/true);
  CHECK(none.dweight.equal(torch::full({64}, 0.5, kOptions)));
}

TEST_CASE("either result of the fused layer_norm may be left unused", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::manual_seed(4);
  Inputs in = random_inputs(9, 768, at::kHalf);
  const at::Tensor x = in.x.detach().requires_grad_();
  const at::Tensor weight = in.weight.detach().requires_grad_();
  ops::layer_norm(x, weight, in.bias, 1e-5).out.backward(in.d_out);
  in.d_passed.zero_();
  CHECK(x.grad().equal(run(ops::layer_norm, in).dx));

  const at::Tensor other = in.x.detach().requires_grad_();
  const auto passed = ops::layer_norm(other, in.weight, in.bias, 1e-5).passed;
  CHECK(passed.data_ptr() == other.data_ptr());
  passed.backward(in.d_out);
  CHECK(other.grad().equal(in.d_out));
}
