#include "train/results.hpp"

#include <chrono>
#include <thread>

#include "precision/stream.hpp"

namespace lockstep::train {

namespace {

constexpr std::size_t kSlots = Results::kLag + 2;  // those outstanding, and the one taken before

std::size_t slot_of(std::int64_t step) {
  return static_cast<std::size_t>(step) % kSlots;
}

}  // namespace

Results::Results(const precision::LossScaler& scaler, bool cuda) : scaler_(scaler), cuda_(cuda) {
  if (!cuda) return;
  ring_ = cuda::PinnedBuffer(kSlots * sizeof(precision::StepState));
  for (std::size_t slot = 0; slot < kSlots; ++slot) arrived_.emplace_back(cuda::Timing::on);
}

std::optional<StepResult> Results::push(std::int64_t step) {
  if (!cuda_) return StepResult{step, *scaler_.state(), std::nullopt};
  const auto stream = precision::current_stream();
  cuda::copy(ring_.as<precision::StepState>() + slot_of(step), scaler_.state(), sizeof(precision::StepState),
             stream);
  arrived_[slot_of(step)].record(stream);
  outstanding_.push_back(step);
  if (outstanding_.size() <= kLag) return std::nullopt;
  return take();
}

std::optional<StepResult> Results::drain() {
  if (outstanding_.empty()) return std::nullopt;
  return take();
}

StepResult Results::take() {
  const std::int64_t step = outstanding_.front();
  outstanding_.pop_front();
  // Asked, not waited for: the host is only ever ahead, and here it is kLag steps ahead.
  while (!arrived_[slot_of(step)].done()) std::this_thread::sleep_for(std::chrono::microseconds(5));
  StepResult result{step, ring_.as<precision::StepState>()[slot_of(step)], std::nullopt};
  if (taken_ == step - 1) result.seconds = arrived_[slot_of(step)].seconds_since(arrived_[slot_of(taken_)]);
  taken_ = step;
  return result;
}

}  // namespace lockstep::train
