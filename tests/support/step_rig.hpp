#pragma once

// Include after Torch.
#include <memory>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "data/loader.hpp"
#include "parallel/gradient_reducer.hpp"
#include "train/learner.hpp"
#include "train/step.hpp"
#include "train/trainer.hpp"

namespace lockstep::test {

/// A learner on CPU ranks with its loader and its step, put together as Trainer does it, for tests that look
/// between two steps. Collective.
class StepRig {
 public:
  /// `model`: a made one; null makes the one that the settings name.
  StepRig(const config::TrainSettings& settings, data::DataSet data, const mpi::Communicator& world,
          std::shared_ptr<models::Model> model = nullptr)
      : StepRig(settings, std::move(data), world, std::move(model),
                train::accumulation_of(settings.global_batch, settings.micro_batch, world.size())) {}

  StepRig(const config::TrainSettings& settings, data::DataSet data_set, const mpi::Communicator& world,
          std::shared_ptr<models::Model> model, std::int64_t accumulation)
      : settings(settings),
        data(std::move(data_set)),
        accumulation(accumulation),
        learner(make_learner(settings, data, world, std::move(model))),
        order(data.row_blocks(), settings.seed, settings.global_batch, settings.data.shuffle),
        loader(data, order, loader_settings(settings, world, accumulation)),
        input(data, loader, at::kCPU, settings.precision, accumulation),
        reducer(learner->parameters(), learner->ranks(), settings.reduce, learner->scaler().loss_buffer()),
        step(learner->model(), input, reducer, learner->scaler(), learner->optimizer(), settings.precision,
             accumulation) {}

  /// One step. Returns what it decided.
  precision::StepState run() {
    input.advance();
    step.run();
    return state();
  }
  precision::StepState state() const { return *learner->scaler().state(); }
  at::Tensor masters() const { return learner->parameters().masters().clone(); }
  std::uint64_t masters_hash() const {
    const at::Tensor& masters = learner->parameters().masters();
    return hash_bytes(masters.data_ptr(), static_cast<std::size_t>(masters.nbytes()));
  }

  config::TrainSettings settings;
  data::DataSet data;
  std::int64_t accumulation;
  std::unique_ptr<train::Learner> learner;
  data::Order order;
  data::Loader loader;
  train::Input input;
  parallel::GradientReducer reducer;
  train::Step step;

 private:
  static std::unique_ptr<train::Learner> make_learner(const config::TrainSettings& settings,
                                                      const data::DataSet& data,
                                                      const mpi::Communicator& world,
                                                      std::shared_ptr<models::Model> model) {
    const train::Place place;
    if (!model) return std::make_unique<train::Learner>(settings, data, settings.run.steps, place, world);
    return std::make_unique<train::Learner>(std::move(model), settings, settings.run.steps, place, world);
  }
  static data::LoaderSettings loader_settings(const config::TrainSettings& settings,
                                              const mpi::Communicator& world, std::int64_t accumulation) {
    data::LoaderSettings loader;
    loader.rank = world.rank();
    loader.world = world.size();
    loader.end_step = settings.run.steps;
    loader.accumulation = accumulation;
    return loader;
  }
};

}  // namespace lockstep::test
