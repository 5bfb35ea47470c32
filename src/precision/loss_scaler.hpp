#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "config/settings.hpp"
#include "precision/flat_parameters.hpp"
#include "precision/step_state.hpp"

namespace lockstep::precision {

/// What `LossScaler::scale` returns: the loss, and the gradient it starts the backward pass with.
struct ScaledLoss {
  at::Tensor sum;   ///< float scalar: sum of the losses of this rank's samples of one micro-batch
  at::Tensor seed;  ///< float scalar on the device: loss_scale / global_count
  void backward() const;
};

/// The dynamic loss scale, kept on the device with everything else that a step decides (StepState). The mean
/// over the global batch is taken in the seed of the backward pass, in float; no gradient is divided
/// afterwards by a count. All methods put work on the current stream and never wait. Local, but alike on all
/// ranks given the same gradients.
class LossScaler {
 public:
  /// `learning_rates` by applied step; the last entry holds for ever after.
  LossScaler(FlatParameters& parameters, const config::ScalerSettings& settings, config::Precision precision,
             double clip_norm, const std::vector<float>& learning_rates);

  /// Forgets the last step's gradients and loss.
  void begin();
  /// Float scalar on the device: loss_scale / global_count, which the backward passes of this step begin
  /// with; for models that form gradients along with the loss.
  at::Tensor gradient_seed(std::int64_t global_count);
  /// Adds `loss_sum` to the step's loss. `global_count`: samples (or tokens) of the whole global batch.
  ScaledLoss scale(const at::Tensor& loss_sum, std::int64_t global_count);
  /// Non-finite flag, gradient norm, clipping and learning rate of this step, from the reduced gradients.
  void inspect();
  /// Counts the step as applied or skipped and moves the scale.
  void update();

  /// In the memory of the parameters' device.
  const StepState* state() const { return state_; }
  /// The step's loss sum, to be summed over ranks beside the gradients.
  comm::Buffer loss_buffer() const;

  /// Copies the state to or from the host; waits for the device. For checkpoints and the end of a run.
  StepState read() const;
  void write(const StepState& state);

 private:
  FlatParameters& parameters_;
  ScaleRule rule_;
  float clip_norm_;
  at::Tensor storage_;         // bytes [sizeof(StepState)]
  at::Tensor seed_;            // a view of state_->gradient_seed
  at::Tensor learning_rates_;  // float [steps + 1]
  at::Tensor partial_sums_;
  at::Tensor partial_flags_;
  StepState* state_;
};

}  // namespace lockstep::precision
