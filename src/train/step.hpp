#pragma once

#include <cstdint>
#include <string>

#include "config/settings.hpp"
#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradient_reducer.hpp"
#include "precision/loss_scaler.hpp"
#include "train/input.hpp"

namespace lockstep::train {

/// One training step, start to end. Collective. Everything is put on the current stream; the host waits for
/// nothing, so on CUDA the whole of run() can be captured as one graph.
class Step {
 public:
  Step(models::Model& model, Input& input, parallel::GradientReducer& reducer, precision::LossScaler& scaler,
       optim::Optimizer& optimizer, config::Precision precision, std::int64_t accumulation)
      : model_(model),
        input_(input),
        reducer_(reducer),
        scaler_(scaler),
        optimizer_(optimizer),
        precision_(precision),
        accumulation_(accumulation) {}

  void run();

  /// Forward and backward passes of the present batch for the sake of what they set up, such as algorithms
  /// chosen by timing. Nothing is reduced and no weight changes, and the next run() starts from zero
  /// gradients. Random numbers are drawn. Local.
  void rehearse();

  /// After the device's memory did not suffice for run() or rehearse(): one line that says what would fit.
  /// Local.
  std::string explain_too_large();

 private:
  models::Loss forward(const models::Batch& batch);
  void try_out(models::Batch batch);  // forward and backward, for what it sets up or needs

  models::Model& model_;
  Input& input_;
  parallel::GradientReducer& reducer_;
  precision::LossScaler& scaler_;
  optim::Optimizer& optimizer_;
  config::Precision precision_;
  std::int64_t accumulation_;
};

}  // namespace lockstep::train
