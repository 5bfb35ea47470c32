#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "telemetry/append_file.hpp"

namespace lockstep::telemetry {

/// One object of metrics.jsonl, over the steps since the report before it.
struct StepReport {
  std::int64_t step = 0;  ///< steps done, skipped ones included; the first is 1
  double epoch = 0;       ///< passes over the data so far, with fraction
  double loss = 0;        ///< mean over the samples, or their tokens, of the last step's global batch
  double lr = 0;          ///< of the last step
  double loss_scale = 1;  ///< of the last step
  std::int64_t skipped_steps = 0;  ///< since the run began
  double grad_norm = 0;            ///< of the last step, unscaled, before clipping
  std::int64_t samples = 0;        ///< since the run began, over all ranks
  double samples_per_second = 0;
  double step_seconds = 0;        ///< mean of one step
  double data_wait_seconds = 0;   ///< mean of one step's wait for its batch
  std::int64_t memory_bytes = 0;  ///< greatest allocation so far, of the rank that reports
  std::optional<double> tokens_per_second;
  std::optional<double> mfu;  ///< model FLOPs over the device's peak, 0 to 1
};

/// One evaluation of the whole evaluation set.
struct EvalReport {
  std::int64_t step = 0;
  double epoch = 0;
  double eval_loss = 0;
  std::optional<double> eval_accuracy;    ///< 0 to 1
  std::optional<double> eval_perplexity;  ///< exp(eval_loss), of tokens
  std::int64_t samples = 0;               ///< evaluated
};

/// The JSON object of a report, without a line end. Numbers read back to the same bits; a non-finite one is
/// null, since JSON has no word for it and a string would change the column's type.
std::string json_line(const StepReport& report);
std::string json_line(const EvalReport& report);

/// metrics.jsonl of a run: one object a line, appended in one write each, never rewritten, no step twice.
/// Rank 0 only. Not thread-safe.
class MetricsFile {
 public:
  /// Opens or creates the file. Of a file that is there, the last step and the last evaluated step are read,
  /// so that the steps which a resumed run repeats are not reported again. A last line without an end is
  /// completed when it is whole JSON; otherwise the job died while writing it, it was never a report, and it
  /// is cut off, so every line is an object. Throws Error(cannot_create or permission).
  explicit MetricsFile(const std::string& path);

  /// Appends, unless this step was reported before. Throws Error(operating_system) when the disk refuses.
  void append(const StepReport& report);
  void append(const EvalReport& report);

  std::int64_t last_step() const { return last_step_; }            ///< -1: none
  std::int64_t last_eval_step() const { return last_eval_step_; }  ///< -1: none

 private:
  void read_last_steps(const std::string& content);

  AppendFile file_;
  std::int64_t last_step_ = -1;
  std::int64_t last_eval_step_ = -1;
};

}  // namespace lockstep::telemetry
