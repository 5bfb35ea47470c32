#pragma once

#include <cstdint>

namespace lockstep::precision {

/// Everything that a step decides, in one struct in the memory of the device (host memory on CPU ranks), so
/// that the host never waits for the device: the loss scale, what the gradients showed, and what the
/// optimizer is to do with them. Identical on every rank, since every rank derives it from the same reduced
/// gradients.
struct StepState {
  // Carried from step to step; stored in checkpoints.
  float loss_scale;
  std::int32_t growth_tracker;   ///< clean steps since the scale last changed
  std::int32_t hysteresis_left;  ///< overflows still tolerated before the scale backs off
  std::int32_t consecutive_skips;
  std::int64_t applied_steps;  ///< optimizer steps taken; the schedule's position
  std::int64_t skipped_steps;

  // Of the present step.
  float loss_sum;                ///< over the samples of all ranks, once reduced
  float global_count;            ///< samples (or tokens) of the global batch
  float gradient_seed;           ///< loss_scale / global_count: where the mean is taken
  std::int32_t found_nonfinite;  ///< 1: some reduced gradient is inf or NaN; this step is skipped
  float gradient_norm;           ///< global 2-norm in true units (unscaled); inf or NaN when found_nonfinite
  float gradient_factor;         ///< what the optimizer multiplies gradients with: unscaling and clipping
  float learning_rate;

  // Of the step that ended last, for the host.
  float loss;  ///< mean over the global batch
  float used_loss_scale;
  std::int32_t skipped;
};

/// Options of the loss scale, as torch.amp.GradScaler defines them, plus floor, ceiling and hysteresis.
struct ScaleRule {
  double growth_factor = 2;  ///< factors are double and their product is rounded once, as in torch
  double backoff_factor = 0.5;
  std::int32_t growth_interval = 2000;
  float min_scale = 0;
  float max_scale = 3.4028234663852886e38f;
  std::int32_t hysteresis = 1;  ///< refilled when the scale grows; once used up, every overflow backs off
  bool dynamic = true;          ///< false in fp32, tf32 and bf16: the scale stays 1
};

/// The loss scale after a step (torch's `_amp_update_scale_`): back off at an overflow; after
/// `growth_interval` clean steps grow, but only to a finite value. Runs in one device thread, and on the host
/// for CPU ranks: one text for both.
constexpr void update_scale(StepState& state, const ScaleRule& rule) {
  if (!rule.dynamic) return;
  if (state.found_nonfinite) {
    state.growth_tracker = 0;
    if (state.hysteresis_left > 1) {
      --state.hysteresis_left;
      return;
    }
    const auto lower = static_cast<float>(state.loss_scale * rule.backoff_factor);
    state.loss_scale = lower < rule.min_scale ? rule.min_scale : lower;
    return;
  }
  if (++state.growth_tracker < rule.growth_interval) return;
  const float higher = state.loss_scale * rule.growth_factor;
  if (higher <= rule.max_scale) state.loss_scale = higher;  // false for infinity
  state.growth_tracker = 0;
  state.hysteresis_left = rule.hysteresis;
}

/// What `inspect` concludes from the sum of squares of the reduced, scaled gradients. `root` is its square
/// root.
constexpr void conclude_gradients(StepState& state, double root, bool nonfinite, float clip_norm,
                                  const float* learning_rates, std::int64_t table_size) {
  const double unscale = 1.0 / state.loss_scale;
  const double norm = root * unscale;
  double factor = unscale;
  if (clip_norm > 0 && norm > clip_norm) factor *= clip_norm / (norm + 1e-6);
  const auto index = state.applied_steps < table_size ? state.applied_steps : table_size - 1;
  state.found_nonfinite = nonfinite ? 1 : 0;
  state.gradient_norm = static_cast<float>(norm);
  state.gradient_factor = static_cast<float>(factor);
  state.learning_rate = learning_rates[index];
}

/// The end of a step: counts it, publishes its loss, and moves the loss scale.
constexpr void end_step(StepState& state, const ScaleRule& rule) {
  state.loss = state.loss_sum / state.global_count;
  state.used_loss_scale = state.loss_scale;
  state.skipped = state.found_nonfinite;
  if (state.found_nonfinite) {
    ++state.skipped_steps;
    ++state.consecutive_skips;
  } else {
    ++state.applied_steps;
    state.consecutive_skips = 0;
  }
  update_scale(state, rule);
}

}  // namespace lockstep::precision
