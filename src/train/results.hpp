#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/memory.hpp"
#include "cuda/stream.hpp"
#include "precision/loss_scaler.hpp"

namespace lockstep::train {

/// What a finished step decided, as the host sees it.
struct StepResult {
  std::int64_t step;  ///< 1 for the first
  precision::StepState state;
  /// From the end of the step before to the end of this one, as the device saw it; none on CPU ranks, and for
  /// the first step.
  std::optional<double> seconds = std::nullopt;
};

/// Brings each step's StepState to the host a fixed number of steps later, through pinned memory: the device
/// is never waited for while it has work, and every rank sees the result of the same step at the same place
/// of its loop. On CPU ranks results are there at once.
class Results {
 public:
  static constexpr std::size_t kLag = 4;

  Results(const precision::LossScaler& scaler, bool cuda);

  /// After a step was put on the current stream. Returns the result of the step kLag before, if there is one.
  std::optional<StepResult> push(std::int64_t step);
  /// The next outstanding result; none when all were taken. Blocks until the device has passed that step.
  std::optional<StepResult> drain();

 private:
  StepResult take();

  const precision::LossScaler& scaler_;
  bool cuda_;
  cuda::PinnedBuffer ring_;           // StepState [kSlots]
  std::vector<cuda::Event> arrived_;  // [kSlots]
  std::deque<std::int64_t> outstanding_;
  std::int64_t taken_ = -1;  // the last step whose result was taken
};

}  // namespace lockstep::train
