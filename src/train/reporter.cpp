#include "train/reporter.hpp"

#include <algorithm>

namespace lockstep::train {

std::int64_t Consumed::samples(std::int64_t step) const {
  const std::int64_t epochs = step / steps_per_epoch;
  return epochs * rows + std::min((step - epochs * steps_per_epoch) * global_batch, rows);
}

Reporter::Reporter(const config::RunSettings& settings, Consumed consumed, Speed speed,
                   std::int64_t first_step, std::int64_t last_step, int rank)
    : report_every_(std::max<std::int64_t>(1, settings.report_every)),
      last_step_(last_step),
      consumed_(consumed),
      speed_(speed),
      progress_(settings.progress, rank, last_step),
      reported_step_(first_step) {
  if (rank == 0) metrics_ = std::make_unique<telemetry::MetricsFile>(settings.folder + "/metrics.jsonl");
}

void Reporter::step(const StepResult& result, double wait_seconds, std::int64_t memory_bytes) {
  // The host may see the ends of several steps at once: on GPUs the device's own times count.
  if (!paused_) busy_seconds_ += result.seconds.value_or(since_step_.seconds());
  paused_ = false;
  since_step_.restart();
  wait_seconds_ += wait_seconds;
  const bool due = result.step % report_every_ == 0 || result.step == last_step_ || result.state.skipped != 0;
  if (!due || !metrics_) return;

  const auto steps = static_cast<double>(result.step - reported_step_);
  telemetry::StepReport report;
  report.step = result.step;
  report.epoch = consumed_.epochs(result.step);
  report.loss = result.state.loss;
  report.lr = result.state.learning_rate;
  report.loss_scale = result.state.used_loss_scale;
  report.skipped_steps = result.state.skipped_steps;
  report.grad_norm = result.state.gradient_norm;
  report.samples = consumed_.samples(result.step);
  report.step_seconds = busy_seconds_ / steps;
  report.samples_per_second =
      static_cast<double>(report.samples - consumed_.samples(reported_step_)) / std::max(busy_seconds_, 1e-9);
  if (speed_.tokens_per_sample > 0) {
    report.tokens_per_second = report.samples_per_second * static_cast<double>(speed_.tokens_per_sample);
  }
  if (speed_.operations_per_sample > 0 && speed_.peak_operations > 0) {
    report.mfu = report.samples_per_second * speed_.operations_per_sample / speed_.peak_operations;
  }
  report.data_wait_seconds = wait_seconds_ / steps;
  report.memory_bytes = memory_bytes;
  metrics_->append(report);
  progress_.report(report);
  reported_step_ = result.step;
  busy_seconds_ = 0;
  wait_seconds_ = 0;
}

void Reporter::evaluation(std::int64_t step, const Evaluation& evaluation) {
  if (!metrics_) return;
  telemetry::EvalReport report;
  report.step = step;
  report.epoch = consumed_.epochs(step);
  report.eval_loss = evaluation.loss;
  report.eval_accuracy = evaluation.accuracy;
  report.eval_perplexity = evaluation.perplexity;
  report.samples = evaluation.rows;
  metrics_->append(report);
  progress_.report(report);
}

}  // namespace lockstep::train
