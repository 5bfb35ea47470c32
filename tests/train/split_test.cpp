// Case P7: one global batch gives one gradient, however ranks and micro-batches cut it.
#include <torch/torch.h>

#include <cstdlib>
#include <numeric>

#include "optim/schedule.hpp"
#include "small.hpp"
#include "support/catch.hpp"
#include "support/gradients.hpp"
#include "support/step_rig.hpp"

using namespace lockstep;
using config::Precision;

namespace {

constexpr std::int64_t kSteps = 6;

config::TrainSettings settings_of(Precision precision, std::int64_t global_batch, std::int64_t micro_batch) {
  config::TrainSettings settings;
  settings.precision = precision;
  settings.global_batch = global_batch;
  settings.micro_batch = micro_batch;
  settings.run.steps = kSteps;
  settings.optimizer.kind =
      config::OptimizerKind::sgd;  // AdamW would blow up the last bit of a tiny gradient
  settings.optimizer.lr = 0.1;
  settings.optimizer.clip_norm = 0.8;
  settings.scaler.init_scale = 4096;
  return settings;
}

/// What a run went through.
struct Trace {
  std::vector<at::Tensor> gradients;  // by step
  std::vector<float> losses;
  std::vector<float> norms;
  at::Tensor masters;

  void add(const precision::FlatParameters& flat, const precision::StepState& state) {
    gradients.push_back(at::cat(test::stored_gradients(flat)));
    losses.push_back(state.loss);
    norms.push_back(state.gradient_norm);
  }
};

/// Every global batch in one piece, on this rank alone, without a reducer.
Trace in_one_piece(const config::TrainSettings& settings, const data::DataSet& data) {
  const auto net = test::small_net();
  precision::FlatParameters flat(*net, settings.precision, [](std::int64_t bytes) {
    return std::shared_ptr<void>(std::calloc(static_cast<std::size_t>(bytes), 1), std::free);
  });
  precision::LossScaler scaler(flat, settings.scaler, settings.precision, settings.optimizer.clip_norm,
                               optim::learning_rates(settings.optimizer.lr, settings.schedule, kSteps));
  const auto optimizer = optim::make_optimizer(flat, settings.optimizer);
  data::Order order(data.row_blocks(), settings.seed, settings.global_batch, settings.data.shuffle);
  data::Rows rows(data, data::Access::rows);
  const train::Normaliser normalise(data, at::kCPU, settings.precision);
  Trace trace;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < order.batch_size(step); ++i) numbers.push_back(order.row(step, i));
    const auto count = static_cast<std::int64_t>(numbers.size());
    const at::Tensor raw = at::empty({count, 1, 4, 4}, at::kByte);
    const at::Tensor targets = at::empty({count}, at::kLong);
    rows.read(numbers, raw.data_ptr(), targets.data_ptr<std::int64_t>());
    scaler.begin();
    scaler.scale(net->loss({normalise(raw), targets}).sum, count).backward();
    flat.store_gradients();
    scaler.inspect();
    optimizer->step(scaler.state());
    scaler.update();
    trace.add(flat, *scaler.state());
  }
  trace.masters = flat.masters().clone();
  return trace;
}

Trace cut_up(const config::TrainSettings& settings, const data::DataSet& data,
             const mpi::Communicator& world) {
  test::StepRig rig(settings, data, world, test::small_net());
  Trace trace;
  for (std::int64_t step = 0; step < kSteps; ++step) trace.add(rig.learner->parameters(), rig.run());
  trace.masters = rig.masters();
  return trace;
}

/// Largest difference as a fraction of the largest value.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

}  // namespace

TEST_CASE("every split of a global batch into ranks and micro-batches gives the gradient of one big batch",
          "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {17, 12});  // 29 rows: the last batch of an epoch is short
  for (const auto precision : {Precision::fp32, Precision::fp16}) {
    const double bound = precision == Precision::fp32 ? 1e-5 : 5e-3;
    for (const std::int64_t global_batch : {13, 16, 3}) {
      const Trace expected = in_one_piece(settings_of(precision, global_batch, 0), data.set());
      for (const std::int64_t micro_batch : {0, 1, 2, 3, 5}) {
        INFO("fp" << (precision == Precision::fp32 ? 32 : 16) << ", global batch " << global_batch
                  << ", micro-batches of " << micro_batch);
        const Trace seen = cut_up(settings_of(precision, global_batch, micro_batch), data.set(), world);
        for (std::size_t step = 0; step < seen.losses.size(); ++step) {
          INFO("step " << step);
          CHECK(seen.losses[step] == Approx(expected.losses[step]).epsilon(bound));
          CHECK(seen.norms[step] == Approx(expected.norms[step]).epsilon(bound));
          CHECK(difference(seen.gradients[step], expected.gradients[step]) < bound);
        }
        CHECK(difference(seen.masters, expected.masters) < bound);
      }
    }
  }
}
