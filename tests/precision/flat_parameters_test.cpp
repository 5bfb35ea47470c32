#include "precision/flat_parameters.hpp"

#include <torch/torch.h>

#include "precision/loss_scaler.hpp"
#include "support/catch.hpp"
#include "support/gradients.hpp"

using namespace lockstep;
using config::Precision;
using precision::FlatParameters;

namespace {

std::shared_ptr<void> zeroed(std::int64_t bytes) {
  return std::shared_ptr<void>(std::calloc(static_cast<std::size_t>(bytes), 1), std::free);
}

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(3, 5));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})));
    second = register_module("second", torch::nn::Linear(5, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(norm(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};

struct Tied : torch::nn::Module {
  Tied() {
    weight = register_parameter("weight", torch::randn({4, 4}));
    same = register_parameter("same", weight);
  }
  at::Tensor weight, same;
};

}  // namespace

TEST_CASE("parameters lie in reverse order of use, aligned, with normalisation kept in float") {
  torch::manual_seed(1);
  Net net;
  const at::Tensor weight = net.first->weight.detach().clone();
  FlatParameters flat(net, Precision::fp16, zeroed);
  std::vector<std::string> names;
  for (const auto& parameter : flat.parameters()) {
    names.push_back(parameter.name);
    CHECK(parameter.begin % FlatParameters::kAlignment == 0);
    const bool norm = parameter.name.rfind("norm", 0) == 0;
    CHECK((parameter.begin >= flat.low_size()) == norm);
    CHECK(parameter.decay == (parameter.shape.size() >= 2));
  }
  CHECK(names == std::vector<std::string>{"second.bias", "second.weight", "first.bias", "first.weight",
                                          "norm.bias", "norm.weight"});
  // Masters keep the float values; the model computes with them rounded to half.
  const auto& place = flat.parameters()[3];
  CHECK(flat.masters().narrow(0, place.begin, place.count).equal(weight.flatten()));
  CHECK(net.first->weight.equal(weight.to(at::kHalf).to(at::kFloat)));
  CHECK(flat.low_weights().scalar_type() == at::kHalf);
}

TEST_CASE("a tied parameter is one range") {
  Tied net;
  FlatParameters flat(net, Precision::fp16, zeroed);
  CHECK(flat.parameters().size() == 1);
}

TEST_CASE("in fp32 the weights are the masters themselves") {
  Net net;
  FlatParameters flat(net, Precision::fp32, zeroed);
  CHECK(flat.low_size() == 0);
  const auto& place = flat.parameters()[0];
  CHECK(place.variable.data_ptr() == flat.masters().data_ptr<float>() + place.begin);
}

TEST_CASE("on CPU ranks gradients are summed in float and rounded to their storage type afterwards") {
  torch::manual_seed(2);
  Net net;
  FlatParameters flat(net, Precision::fp16, zeroed);
  flat.clear_gradients();
  net.forward(torch::ones({2, 3})).sum().backward();
  for (const auto& parameter : flat.parameters()) {
    const auto buffer = flat.gradient_buffer({parameter.begin, parameter.count});
    CHECK(buffer.scalar == comm::Scalar::float32);
    CHECK(buffer.data == parameter.variable.grad().data_ptr());
    static_cast<float*>(buffer.data)[0] += 1e-6f;  // what only the sum over ranks knows is stored, too
  }
  flat.store_gradients();
  const auto stored = test::stored_gradients(flat);
  for (std::size_t index = 0; index < stored.size(); ++index) {
    const auto& parameter = flat.parameters()[index];
    const at::Tensor computed = parameter.variable.grad().flatten();
    const bool low = parameter.begin < flat.low_size();
    CHECK(stored[index].equal(low ? computed.to(at::kHalf).to(at::kFloat) : computed));
  }
  flat.clear_gradients();
  CHECK(net.first->weight.grad().abs().sum().item<float>() == 0);
  net.first->weight.mutable_grad()[0][0] = 1e6f;  // beyond half: becomes inf where it is stored
  flat.store_gradients();
  CHECK(flat.first_nonfinite() == "first.weight");
}

TEST_CASE("inspect sees an inf or NaN anywhere and gives the true norm otherwise") {
  Net net;
  FlatParameters flat(net, Precision::fp16, zeroed);
  precision::LossScaler scaler(flat, {}, Precision::fp16, 0, {0.5f});
  CHECK(scaler.state()->loss_scale == 65536);
  scaler.begin();
  for (const auto& parameter : flat.parameters()) parameter.variable.mutable_grad().fill_(2);
  flat.store_gradients();
  scaler.inspect();
  std::int64_t count = 0;
  for (const auto& parameter : flat.parameters()) count += parameter.count;
  CHECK(scaler.state()->found_nonfinite == 0);
  CHECK(scaler.state()->gradient_norm == Approx(2 * std::sqrt(double(count)) / 65536));
  CHECK(scaler.state()->learning_rate == 0.5f);
  for (const float planted : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
    for (const auto& parameter : flat.parameters()) {
      const at::Tensor last = parameter.variable.mutable_grad().flatten();
      last[parameter.count - 1] = planted;
      flat.store_gradients();
      scaler.inspect();
      CHECK(scaler.state()->found_nonfinite == 1);
      last[parameter.count - 1] = 2;
      flat.store_gradients();
    }
  }
  scaler.inspect();
  CHECK(scaler.state()->found_nonfinite == 0);
}

TEST_CASE("the loss is the global mean and the backward pass starts with loss_scale / global_count") {
  Net net;
  FlatParameters flat(net, Precision::fp16, zeroed);
  precision::LossScaler scaler(flat, {}, Precision::fp16, 0, {0.5f});
  scaler.begin();
  CHECK(scaler.scale(torch::tensor(6.0f), 8).seed.item<float>() == 8192);
  CHECK(scaler.scale(torch::tensor(10.0f), 8).seed.item<float>() == 8192);
  scaler.inspect();
  scaler.update();
  CHECK(scaler.state()->loss == 2);
  const precision::StepState saved = scaler.read();
  precision::LossScaler other(flat, {}, Precision::fp16, 0, {0.5f});
  other.write(saved);
  CHECK(other.state()->applied_steps == 1);
}
