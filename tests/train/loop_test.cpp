#include <torch/torch.h>

#include "small.hpp"
#include "support/catch.hpp"
#include "support/step_rig.hpp"
#include "train/reporter.hpp"
#include "train/results.hpp"

using namespace lockstep;

TEST_CASE("micro-batches are as few as their size allows for the largest share of a rank") {
  using train::accumulation_of;
  CHECK(accumulation_of(16, 0, 4) == 1);
  CHECK(accumulation_of(16, 4, 4) == 1);
  CHECK(accumulation_of(16, 3, 4) == 2);
  CHECK(accumulation_of(17, 4, 4) == 2);  // a share of 5
  CHECK(accumulation_of(13, 2, 4) == 2);
  CHECK(accumulation_of(16, 1, 1) == 16);
  CHECK(accumulation_of(1, 8, 4) == 1);
  CHECK(accumulation_of(3, 1, 4) == 1);
  // No micro-batch is larger than asked for, on any rank.
  for (std::int64_t batch = 1; batch < 40; ++batch) {
    for (std::int64_t micro = 1; micro < 9; ++micro) {
      for (std::int64_t world = 1; world < 9; ++world) {
        const auto accumulation = accumulation_of(batch, micro, world);
        std::int64_t largest = 0;
        for (std::int64_t rank = 0; rank < world; ++rank) {
          for (std::int64_t i = 0; i < accumulation; ++i) {
            largest = std::max(largest,
                               data::micro_share(data::share(batch, rank, world), i, accumulation).count());
          }
        }
        if (largest > micro)
          FAIL(batch << " in micro-batches of " << micro << " on " << world << ": " << largest);
      }
    }
  }
}

TEST_CASE("samples so far count the short last batch of an epoch once") {
  const train::Consumed consumed{10, 4, 3};
  const std::vector<std::int64_t> expected{0, 4, 8, 10, 14, 18, 20, 24};
  for (std::size_t step = 0; step < expected.size(); ++step) {
    CHECK(consumed.samples(static_cast<std::int64_t>(step)) == expected[step]);
  }
  CHECK(consumed.epochs(3) == 1.0);
  CHECK(consumed.epochs(4) == Approx(1.4));
  const train::Consumed whole{3, 100, 1};  // a batch larger than the data
  CHECK(whole.samples(5) == 15);
}

TEST_CASE("on CPU ranks the result of a step is there at once and none is outstanding", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {17, 12});
  config::TrainSettings settings;
  settings.global_batch = 8;
  settings.run.steps = 3;
  test::StepRig rig(settings, data.set(), world, test::small_net());
  train::Results results(rig.learner->scaler(), false);
  CHECK_FALSE(results.drain().has_value());
  for (std::int64_t step = 1; step <= 3; ++step) {
    const auto state = rig.run();
    const auto result = results.push(step);
    REQUIRE(result.has_value());
    CHECK(result->step == step);
    CHECK(result->state.loss == state.loss);
    CHECK(result->state.applied_steps == step);
    CHECK_FALSE(results.drain().has_value());
  }
}
