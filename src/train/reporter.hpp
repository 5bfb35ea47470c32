#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "config/settings.hpp"
#include "telemetry/metrics.hpp"
#include "telemetry/progress.hpp"
#include "train/evaluate.hpp"
#include "train/results.hpp"

namespace lockstep::train {

/// How far the data has come after a step; follows from the order of samples alone.
struct Consumed {
  std::int64_t rows = 0;  ///< of the data set
  std::int64_t global_batch = 1;
  std::int64_t steps_per_epoch = 1;
  std::int64_t samples(std::int64_t step) const;
  double epochs(std::int64_t step) const {
    return static_cast<double>(samples(step)) / static_cast<double>(rows);
  }
};

/// What one sample is, for rates beyond samples a second.
struct Speed {
  std::int64_t tokens_per_sample = 0;  ///< 0: samples are no tokens
  double operations_per_sample = 0;    ///< of training, floating-point; 0: not known
  double peak_operations = 0;          ///< a second, of all ranks' devices together; 0: not known
};

/// Turns results into metrics.jsonl and the progress line, on rank 0; other ranks hold an empty one.
class Reporter {
 public:
  Reporter(const config::RunSettings& settings, Consumed consumed, Speed speed, std::int64_t first_step,
           std::int64_t last_step, int rank);

  /// One step's result, in order. `wait_seconds`: how long its batch was waited for, roughly: it is that of
  /// the step just started, since results come a few steps late.
  void step(const StepResult& result, double wait_seconds, std::int64_t memory_bytes);
  void evaluation(std::int64_t step, const Evaluation& evaluation);
  void note(const std::string& line) { progress_.note(line); }
  void finish() { progress_.finish(); }
  /// Time until the next call of step() counts for no step: an evaluation or a checkpoint.
  void pause() { paused_ = true; }

 private:
  std::int64_t report_every_;
  std::int64_t last_step_;
  Consumed consumed_;
  Speed speed_;
  std::unique_ptr<telemetry::MetricsFile> metrics_;  // rank 0
  telemetry::Progress progress_;
  std::int64_t reported_step_;
  double busy_seconds_ = 0;  // since the last report, without pauses
  double wait_seconds_ = 0;
  bool paused_ = false;
  Stopwatch since_step_;
};

}  // namespace lockstep::train
