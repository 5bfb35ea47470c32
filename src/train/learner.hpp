#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "config/settings.hpp"
#include "data/shards.hpp"
#include "models/model.hpp"
#include "models/registry.hpp"
#include "optim/optimizer.hpp"
#include "precision/flat_parameters.hpp"
#include "precision/loss_scaler.hpp"
#include "train/place.hpp"

namespace lockstep::train {

/// The model that `settings` ask for, to learn from rows such as those of `data`.
models::ModelRequest request_for(const config::ModelSettings& settings, const data::DataSet& data);

/// What learns: the model, its flat parameters, the loss scale and the optimizer, on one rank. All that a
/// checkpoint holds beside the position in the data.
class Learner {
 public:
  /// Collective: every rank makes the same model from the seed, and rank 0's masters are sent to all.
  /// `total_steps` is the length of the schedule where the settings give none.
  Learner(const config::TrainSettings& settings, const models::ModelRequest& request,
          std::int64_t total_steps, const Place& place, const mpi::Communicator& world);
  Learner(const config::TrainSettings& settings, const data::DataSet& data, std::int64_t total_steps,
          const Place& place, const mpi::Communicator& world)
      : Learner(settings, request_for(settings.model, data), total_steps, place, world) {}
  /// The same around a model that is made already, on the CPU.
  Learner(std::shared_ptr<models::Model> model, const config::TrainSettings& settings,
          std::int64_t total_steps, const Place& place, const mpi::Communicator& world);

  models::Model& model() { return *model_; }
  comm::Communicator& ranks() { return *ranks_; }
  precision::FlatParameters& parameters() { return *parameters_; }
  precision::LossScaler& scaler() { return *scaler_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  std::int64_t parameter_count() const;

  /// Reads a checkpoint of the same model, of any world size. Returns its state.json. Collective.
  nlohmann::json load(const std::string& folder, const mpi::Communicator& world);
  /// Throws Error(replicas_differ) on every rank where masters or moments are not the same bits on all;
  /// `step` is named. Copies them to the host. Collective.
  void check_replicas(std::int64_t step, const mpi::Communicator& world) const;
  /// Writes one; `state` is completed with the loss scale and counters. Waits for the device. Collective.
  std::string save(const std::string& run_folder, std::int64_t step, nlohmann::json state,
                   const std::string& config, std::int64_t keep, const mpi::Communicator& world);

 private:
  checkpoint::Snapshot snapshot();

  std::shared_ptr<models::Model> model_;
  std::unique_ptr<comm::Communicator> ranks_;
  std::unique_ptr<precision::FlatParameters> parameters_;
  std::unique_ptr<precision::LossScaler> scaler_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

}  // namespace lockstep::train
