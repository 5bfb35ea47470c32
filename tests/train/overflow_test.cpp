// Case P1: whichever rank meets an inf or NaN, all ranks skip that step and no other.
#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "base/text.hpp"
#include "small.hpp"
#include "support/catch.hpp"
#include "support/step_rig.hpp"

using namespace lockstep;
using config::Precision;
using test::Plant;
using test::StepRig;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

config::TrainSettings settings_of(Precision precision, std::int64_t global_batch) {
  config::TrainSettings settings;
  settings.precision = precision;
  settings.global_batch = global_batch;
  settings.run.steps = 1000;
  settings.scaler.init_scale = 1024;
  settings.scaler.growth_interval = 1;  // back at 1024 after each pair of a clean step and a planted one
  settings.reduce.first_bucket_bytes = 64;
  settings.reduce.bucket_bytes = 256;
  settings.optimizer.clip_norm = 1;
  return settings;
}

/// Equal on every rank, as bits.
bool alike(const mpi::Communicator& world, std::uint64_t value) {
  const auto all = world.all_gather(static_cast<std::int64_t>(value));
  return std::all_of(all.begin(), all.end(), [&](std::int64_t other) { return other == all[0]; });
}

std::uint64_t hash_of(const at::Tensor& values) {
  return values.defined() ? hash_bytes(values.data_ptr(), static_cast<std::size_t>(values.nbytes())) : 0;
}

/// Everything that a skipped step may not touch.
std::vector<std::uint64_t> learnt(StepRig& rig) {
  std::vector<std::uint64_t> hashes{rig.masters_hash(), hash_of(rig.learner->parameters().low_weights()),
                                    hash_of(rig.learner->parameters().widened_weights())};
  for (const auto& moment : rig.learner->optimizer().moments()) hashes.push_back(hash_of(moment));
  return hashes;
}

class Planting {
 public:
  Planting(const mpi::Communicator& world, const config::TrainSettings& settings, const data::DataSet& data,
           std::int64_t accumulation = 1)
      : world_(world), net_(test::small_net()), rig_(settings, data, world, net_, accumulation) {}

  /// One clean step, then one in which `rank` (-1: every rank) meets `plant`.
  void clean_then_planted(int rank, const Plant& plant) {
    INFO("rank " << rank << " meets " << plant.value << " in micro-batch " << plant.micro);
    step_is(false);
    if (rank < 0 || rank == world_.rank()) net_->plant(plant);
    step_is(true);
  }

  /// A step in which this rank meets `value`, and none is skipped.
  void clean(float value) {
    net_->plant({value, 0, false});
    step_is(false);
  }

  StepRig& rig() { return rig_; }

 private:
  void step_is(bool skipped) {
    const auto before = learnt(rig_);
    const auto scale_before = rig_.state().loss_scale;
    const auto applied_before = rig_.state().applied_steps;
    const auto state = rig_.run();
    net_->plant({});
    CHECK(state.skipped == (skipped ? 1 : 0));
    CHECK((learnt(rig_) == before) == skipped);
    CHECK(state.applied_steps == applied_before + (skipped ? 0 : 1));
    CHECK(state.consecutive_skips == (skipped ? 1 : 0));
    if (rig_.settings.precision == Precision::fp16) {
      CHECK(state.loss_scale == scale_before * (skipped ? 0.5f : 2.0f));
    } else {
      CHECK(state.loss_scale == 1);
    }
    CHECK(alike(world_, rig_.masters_hash()));
    CHECK(alike(world_, hash_bytes(&state, sizeof state)));  // with it the loss, the norm and the rate
  }

  const mpi::Communicator& world_;
  std::shared_ptr<test::SmallNet> net_;
  StepRig rig_;
};

}  // namespace

TEST_CASE("an inf or NaN on one rank, each in turn, makes all ranks skip that very step and no other",
          "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {40, 24});
  for (const auto precision : {Precision::fp16, Precision::bf16, Precision::fp32}) {
    Planting planting(world, settings_of(precision, 12), data.set());
    for (int rank = 0; rank < world.size(); ++rank) {
      for (const float value : {kInf, -kInf, kNan}) {
        for (const bool in_normalisation : {false, true})
          planting.clean_then_planted(rank, {value, 0, in_normalisation});
      }
    }
  }
}

TEST_CASE("the same with three micro-batches, in the first, the middle and the last", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {40, 24});
  for (const bool overlap : {true, false}) {
    auto settings = settings_of(Precision::fp16, 16);
    settings.reduce.overlap = overlap ? config::OverlapMode::on : config::OverlapMode::off;
    Planting planting(world, settings, data.set(), 3);
    for (int rank = 0; rank < world.size(); ++rank) {
      for (const std::int64_t micro : {0, 1, 2}) {
        for (const float value : {kInf, kNan}) planting.clean_then_planted(rank, {value, micro, false});
      }
    }
  }
}

TEST_CASE("the same while one rank has no rows, on that rank, too", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {40, 24});
  const auto batch = std::max(1, world.size() - 1);  // rank 0 of several gets none
  for (const std::int64_t accumulation : {1, 3}) {
    Planting planting(world, settings_of(Precision::fp16, batch), data.set(), accumulation);
    CHECK(data::share(batch, 0, world.size()).count() == (world.size() == 1 ? 1 : 0));
    for (int rank = 0; rank < world.size(); ++rank) {
      for (const float value : {kInf, kNan}) {
        for (const bool in_normalisation : {false, true}) {
          planting.clean_then_planted(rank, {value, accumulation - 1, in_normalisation});
        }
      }
    }
  }
}

TEST_CASE(
    "a gradient that only its half, or only the sum over ranks, cannot hold is an overflow on all ranks",
    "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {40, 24});
  Planting planting(world, settings_of(Precision::fp16, 12), data.set());
  for (int rank = 0; rank < world.size(); ++rank) {
    planting.clean_then_planted(rank, {1e6f, 0, false});
    planting.clean_then_planted(rank, {-1e6f, 0, false});
  }
  // Alike on all ranks, so no other part moves the sum off the edge.
  planting.clean_then_planted(-1, {-65520.0f / static_cast<float>(world.size()), 0, false});
  if (world.size() > 1) planting.clean_then_planted(-1, {40000, 0, false});
}

TEST_CASE("parts beyond half whose sum half can hold are no overflow", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {40, 24});
  Planting planting(world, settings_of(Precision::fp16, 12), data.set());
  const bool last = world.rank() + 1 == world.size();
  planting.clean(world.size() == 1 ? 60000.0f : world.rank() == 0 ? 1e6f : last ? -1e6f : 0.0f);
}

TEST_CASE("weights that differ between ranks are found, with the array and the rank", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {40});
  StepRig rig(settings_of(Precision::fp16, 8), data.set(), world, test::small_net());
  rig.run();
  CHECK_NOTHROW(rig.learner->check_replicas(1, world));
  if (world.size() == 1) return;
  const int last = world.size() - 1;
  if (world.rank() == last) rig.learner->optimizer().moments()[1].view(-1)[3] += 1;
  CHECK_THROWS_WITH(rig.learner->check_replicas(7, world),
                    test::contains(text("step 7: moment1 of rank ", last, " (hash ")));
}
