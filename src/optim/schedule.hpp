#pragma once

#include <cstdint>
#include <vector>

#include "config/settings.hpp"

namespace lockstep::optim {

/// Learning rate by applied step, [steps + 1]: the device looks its step up, so a skipped step advances
/// nothing.
///
/// With W warm-up steps the rate of step i < W is lr (i + 1) / W. After it, over the remaining S - W steps of
/// the schedule: constant; linear and cosine from lr to lr x final_fraction; warmup_stable_decay stays at lr
/// and falls linearly over the last decay_steps. From step S on, the last value holds. `settings.steps` of 0
/// means `run_steps`.
std::vector<float> learning_rates(double peak, const config::ScheduleSettings& settings,
                                  std::int64_t run_steps);

}  // namespace lockstep::optim
