#include <torch/torch.h>

#include <cstring>
#include <limits>
#include <set>

#include "base/file.hpp"
#include "base/text.hpp"
#include "small.hpp"
#include "support/catch.hpp"
#include "support/step_rig.hpp"

using namespace lockstep;
using config::Precision;
using test::StepRig;

namespace {

constexpr double kDropout = 0.5;

config::TrainSettings settings_of(const test::SharedData& data, Precision precision, std::int64_t steps) {
  config::TrainSettings settings;
  settings.model.name = "small";
  settings.precision = precision;
  settings.global_batch = 10;
  settings.micro_batch = 3;
  settings.scaler.init_scale = 4096;
  settings.scaler.growth_interval = 3;
  settings.scaler.hysteresis = 2;
  settings.run.steps = steps;
  settings.run.folder = data / "run";
  settings.run.progress = config::ProgressMode::off;
  settings.run.keep_checkpoints = 0;
  settings.schedule.kind = config::ScheduleKind::cosine;
  return settings;
}

/// The bits of everything a run carries from step to step.
void expect_same(train::Learner& a, train::Learner& b) {
  CHECK(a.parameters().masters().equal(b.parameters().masters()));
  for (std::size_t i = 0; i < a.optimizer().moments().size(); ++i) {
    CHECK(a.optimizer().moments()[i].equal(b.optimizer().moments()[i]));
  }
  const auto weights = a.model().named_parameters();
  for (const auto& weight : b.model().named_parameters()) CHECK(weights[weight.key()].equal(weight.value()));
  const auto buffers = a.model().named_buffers();
  for (const auto& buffer : b.model().named_buffers()) CHECK(buffers[buffer.key()].equal(buffer.value()));
  const auto left = a.scaler().read();
  const auto right = b.scaler().read();
  CHECK(left.loss_scale == right.loss_scale);
  CHECK(left.growth_tracker == right.growth_tracker);
  CHECK(left.hysteresis_left == right.hysteresis_left);
  CHECK(left.consecutive_skips == right.consecutive_skips);
  CHECK(left.applied_steps == right.applied_steps);
  CHECK(left.skipped_steps == right.skipped_steps);
}

/// Trains a fresh learner, or one from `checkpoint`, from `first` to `last` as a run does. Returns what
/// dropout drew.
struct Run {
  std::shared_ptr<test::SmallNet> net;
  std::unique_ptr<train::Learner> learner;
  std::string checkpoint;
};

/// Trains a fresh learner, or one from `checkpoint`, from step `first` to `last` as a run does.
Run train_from_to(const config::TrainSettings& settings, const data::DataSet& data,
                  const mpi::Communicator& world, std::int64_t first, std::int64_t last,
                  const std::string& checkpoint) {
  Run run;
  run.net = test::small_net(first == 0 ? 1 : 77, kDropout);  // a resumed one starts from other weights
  const train::Place place;
  run.learner = std::make_unique<train::Learner>(run.net, settings, settings.run.steps, place, world);
  if (!checkpoint.empty()) run.learner->load(checkpoint, world);
  const data::Order order(data.row_blocks(), settings.seed, settings.global_batch, settings.data.shuffle);
  train::Trainer trainer(settings, *run.learner, {data, order, std::nullopt, first, last, checkpoint}, place,
                         world);
  trainer.run();
  run.checkpoint = trainer.last_checkpoint();
  return run;
}

}  // namespace

TEST_CASE(
    "a saved learner comes back with every bit, its loss scale and counters included, and goes on alike",
    "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {17, 12});
  for (const auto precision : {Precision::fp16, Precision::bf16, Precision::fp32}) {
    for (const std::int64_t overflow_at : {0, 3, 5}) {
      INFO("overflow in step " << overflow_at);
      const auto settings = settings_of(data, precision, 12);
      const auto net = test::small_net(1);
      StepRig rig(settings, data.set(), world, net);
      for (std::int64_t step = 0; step < 6; ++step) {
        if (step == overflow_at) net->plant({std::numeric_limits<float>::infinity(), 0, false});
        CHECK(rig.run().skipped == (step == overflow_at ? 1 : 0));
        net->plant({});
      }
      const auto folder = rig.learner->save(data / text("run", static_cast<int>(precision), overflow_at), 6,
                                            {{"epoch", 2}}, "{}", 0, world);
      StepRig other(settings, data.set(), world, test::small_net(99));
      CHECK_FALSE(other.learner->parameters().masters().equal(rig.learner->parameters().masters()));
      const auto stored = other.learner->load(folder, world);
      CHECK(stored.at("epoch") == 2);
      expect_same(*rig.learner, *other.learner);
      for (std::int64_t step = 0; step < 6; ++step) other.input.advance();  // to the same place in the data
      for (std::int64_t step = 6; step < 12; ++step) {
        const auto left = rig.run();
        const auto right = other.run();
        CHECK(std::memcmp(&left, &right, sizeof left) == 0);
        expect_same(*rig.learner, *other.learner);
      }
    }
  }
}

TEST_CASE(
    "the random numbers of a step follow from seed, step and rank, so a run with dropout resumes with the "
    "same bits",
    "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {17, 12});
  auto settings = settings_of(data, Precision::fp16, 9);
  for (const char* name : {"run", "whole"}) mpi::on_root(world, [&] { make_folder(data / name); });
  settings.run.folder = data / "whole";
  Run whole = train_from_to(settings, data.set(), world, 0, 9, "");
  settings.run.folder = data / "run";
  std::vector<std::int64_t> drawn;
  Run part;
  for (const auto& [first, last] : {std::pair{0, 4}, std::pair{4, 5}, std::pair{5, 9}}) {
    torch::manual_seed(static_cast<std::uint64_t>(1000 + last));  // whatever was drawn before does not matter
    part = train_from_to(settings, data.set(), world, first, last, part.checkpoint);
    drawn.insert(drawn.end(), part.net->drawn.begin(), part.net->drawn.end());
  }
  expect_same(*whole.learner, *part.learner);
  CHECK(drawn == whole.net->drawn);
  const std::set<std::int64_t> different(drawn.begin(), drawn.end());
  CHECK(different.size() > drawn.size() / 2);  // of 4,096 ways to draw
  const auto text_of = [](const std::vector<std::int64_t>& values) {
    std::string words;
    for (const auto value : values) words += text(value, " ");
    return words;
  };
  const auto all = world.all_gather_text(text_of(drawn));
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == all.size());  // ranks draw differently

  settings.seed += 1;
  settings.run.folder = data / "other";
  mpi::on_root(world, [&] { make_folder(data / "other"); });
  CHECK_FALSE(train_from_to(settings, data.set(), world, 0, 9, "").net->drawn == drawn);
}
