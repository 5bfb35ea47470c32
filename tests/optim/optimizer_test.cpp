#include "optim/optimizer.hpp"

#include <torch/torch.h>

#include "optim/schedule.hpp"
#include "precision/loss_scaler.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using config::Precision;

namespace {

std::shared_ptr<void> zeroed(std::int64_t bytes) {
  return std::shared_ptr<void>(std::calloc(static_cast<std::size_t>(bytes), 1), std::free);
}

struct Net : torch::nn::Module {
  Net() { layer = register_module("layer", torch::nn::Linear(37, 11)); }
  torch::nn::Linear layer{nullptr};
};

/// Runs our optimizer and `theirs` on equal gradients; returns the largest difference of a weight.
template <class Theirs>
float largest_difference(const config::OptimizerSettings& settings, Theirs make_theirs) {
  torch::manual_seed(3);
  Net ours;
  Net theirs;
  {
    torch::NoGradGuard no_grad;
    theirs.layer->weight.copy_(ours.layer->weight);
    theirs.layer->bias.copy_(ours.layer->bias);
  }
  precision::FlatParameters flat(ours, Precision::fp32, zeroed);
  precision::LossScaler scaler(flat, {}, Precision::fp32, 0, {static_cast<float>(settings.lr)});
  const auto optimizer = optim::make_optimizer(flat, settings);
  auto reference = make_theirs(theirs);
  for (int step = 0; step < 25; ++step) {
    const at::Tensor x = torch::randn({8, 37});
    scaler.begin();
    ours.layer(x).square().sum().backward();
    reference.zero_grad();
    theirs.layer(x).square().sum().backward();
    scaler.inspect();
    optimizer->step(scaler.state());
    scaler.update();
    reference.step();
  }
  return (ours.layer->weight - theirs.layer->weight).abs().max().template item<float>();
}

}  // namespace

TEST_CASE("AdamW follows torch's AdamW, decay on matrices only") {
  config::OptimizerSettings settings;
  settings.lr = 1e-2;
  settings.weight_decay = 0.1;
  const float difference = largest_difference(settings, [](Net& net) {
    auto options = [](double decay) {
      return std::make_unique<torch::optim::AdamWOptions>(
          torch::optim::AdamWOptions(1e-2).weight_decay(decay));
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{net.layer->weight}, options(0.1));
    groups.emplace_back(std::vector<at::Tensor>{net.layer->bias}, options(0.0));
    return torch::optim::AdamW(groups, torch::optim::AdamWOptions(1e-2));
  });
  CHECK(difference < 2e-6);
}

TEST_CASE("SGD with momentum follows torch's") {
  config::OptimizerSettings settings;
  settings.kind = config::OptimizerKind::sgd;
  settings.lr = 1e-4;
  settings.weight_decay = 0;
  const float difference = largest_difference(settings, [](Net& net) {
    return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(1e-4).momentum(0.9));
  });
  CHECK(difference < 1e-6);
}

TEST_CASE("a step with a non-finite gradient changes no bit of masters, moments or weights") {
  for (const auto kind : {config::OptimizerKind::adamw, config::OptimizerKind::sgd}) {
    Net net;
    precision::FlatParameters flat(net, Precision::fp16, zeroed);
    precision::LossScaler scaler(flat, {}, Precision::fp16, 0, {0.1f});
    config::OptimizerSettings settings;
    settings.kind = kind;
    const auto optimizer = optim::make_optimizer(flat, settings);
    const auto step = [&](float gradient) {
      scaler.begin();
      for (const auto& parameter : flat.parameters()) parameter.variable.mutable_grad().fill_(gradient);
      flat.store_gradients();
      scaler.inspect();
      optimizer->step(scaler.state());
      scaler.update();
    };
    step(1);
    const at::Tensor masters = flat.masters().clone();
    const at::Tensor weights = flat.low_weights().clone();
    const at::Tensor moment = optimizer->moments()[0].clone();
    step(std::numeric_limits<float>::infinity());
    CHECK(flat.masters().equal(masters));
    CHECK(flat.low_weights().equal(weights));
    CHECK(optimizer->moments()[0].equal(moment));
    CHECK(scaler.state()->loss_scale == 32768);
    step(1);
    CHECK_FALSE(flat.masters().equal(masters));
    CHECK(flat.low_weights().equal(flat.masters().narrow(0, 0, flat.low_size()).to(at::kHalf)));
  }
}

TEST_CASE("schedules have their corners where they should") {
  config::ScheduleSettings settings;
  settings.warmup_steps = 4;
  settings.final_fraction = 0.1;
  using Kind = config::ScheduleKind;
  for (const auto kind : {Kind::constant, Kind::linear, Kind::cosine, Kind::warmup_stable_decay}) {
    settings.kind = kind;
    const auto rates = optim::learning_rates(2.0, settings, 24);
    CHECK(rates.size() == 25);
    CHECK(rates[0] == 0.5f);
    CHECK(rates[3] == 2.0f);
    CHECK(rates[4] == 2.0f);
    CHECK(rates[24] == Approx(kind == Kind::constant ? 2.0 : 0.2));
  }
  settings.kind = Kind::linear;
  CHECK(optim::learning_rates(2.0, settings, 24)[14] == Approx(1.1));
  settings.kind = Kind::cosine;
  CHECK(optim::learning_rates(2.0, settings, 24)[14] == Approx(1.1));
  settings.kind = Kind::warmup_stable_decay;
  settings.decay_steps = 10;
  const auto rates = optim::learning_rates(2.0, settings, 24);
  CHECK(rates[14] == 2.0f);
  CHECK(rates[19] == Approx(1.1));
  settings.steps = 12;  // its own length: the run may be longer
  CHECK(optim::learning_rates(2.0, settings, 24).size() == 13);
}
