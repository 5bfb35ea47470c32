#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::optim {

namespace {

/// Fraction of the peak, `done` in [0, 1] of the way from warm-up to the schedule's end.
double falling_fraction(const config::ScheduleSettings& settings, double done, double decay_share) {
  const double low = settings.final_fraction;
  switch (settings.kind) {
    case config::ScheduleKind::constant:
      return 1;
    case config::ScheduleKind::linear:
      return 1 - (1 - low) * done;
    case config::ScheduleKind::cosine:
      return low + (1 - low) * 0.5 * (1 + std::cos(std::numbers::pi * done));
    case config::ScheduleKind::warmup_stable_decay: {
      const double decayed = decay_share > 0 ? (done - (1 - decay_share)) / decay_share : 0;
      return 1 - (1 - low) * std::clamp(decayed, 0.0, 1.0);
    }
  }
  return 1;
}

}  // namespace

std::vector<float> learning_rates(double peak, const config::ScheduleSettings& settings,
                                  std::int64_t run_steps) {
  const std::int64_t steps = settings.steps > 0 ? settings.steps : run_steps;
  const std::int64_t falling = std::max<std::int64_t>(1, steps - settings.warmup_steps);
  const std::int64_t decay =
      settings.decay_steps > 0 ? settings.decay_steps : std::max<std::int64_t>(1, steps / 10);
  const double decay_share = std::min(1.0, static_cast<double>(decay) / falling);
  std::vector<float> rates(static_cast<std::size_t>(steps) + 1);
  for (std::int64_t step = 0; step <= steps; ++step) {
    double fraction = 0;
    if (step < settings.warmup_steps) {
      fraction = static_cast<double>(step + 1) / settings.warmup_steps;
    } else {
      const double done = std::min(1.0, static_cast<double>(step - settings.warmup_steps) / falling);
      fraction = falling_fraction(settings, done, decay_share);
    }
    rates[static_cast<std::size_t>(step)] = static_cast<float>(peak * fraction);
  }
  return rates;
}

}  // namespace lockstep::optim
