#include "telemetry/metrics.hpp"

#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "base/text.hpp"

namespace lockstep::telemetry {

namespace {

using Json = nlohmann::ordered_json;  // writes shortest numbers that read back to the same bits, and null for
                                      // nan and inf

// The step of a line that is a report; -1 where it is none.
std::int64_t step_of(const std::string& line) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return -1;
  return object["step"].get<std::int64_t>();
}

bool is_evaluation(const std::string& line) {
  return line.find("\"eval_loss\"") != std::string::npos;
}

}  // namespace

std::string json_line(const StepReport& report) {
  Json object = {{"step", report.step},
                 {"epoch", report.epoch},
                 {"loss", report.loss},
                 {"lr", report.lr},
                 {"loss_scale", report.loss_scale},
                 {"skipped_steps", report.skipped_steps},
                 {"grad_norm", report.grad_norm},
                 {"samples", report.samples},
                 {"samples_per_second", report.samples_per_second}};
  if (report.tokens_per_second) object["tokens_per_second"] = *report.tokens_per_second;
  object["step_seconds"] = report.step_seconds;
  object["data_wait_seconds"] = report.data_wait_seconds;
  object["memory_bytes"] = report.memory_bytes;
  if (report.mfu) object["mfu"] = *report.mfu;
  return object.dump();
}

std::string json_line(const EvalReport& report) {
  Json object = {{"step", report.step}, {"epoch", report.epoch}, {"eval_loss", report.eval_loss}};
  if (report.eval_accuracy) object["eval_accuracy"] = *report.eval_accuracy;
  if (report.eval_perplexity) object["eval_perplexity"] = *report.eval_perplexity;
  object["samples"] = report.samples;
  return object.dump();
}

MetricsFile::MetricsFile(const std::string& path) : file_(path) {
  const std::string content = read_text_file(path);
  const auto end = content.rfind('\n');
  const std::size_t whole = end == std::string::npos ? 0 : end + 1;
  if (whole < content.size()) {
    if (step_of(content.substr(whole)) >= 0) {
      file_.append("");
    } else {
      file_.cut(static_cast<std::int64_t>(whole));
    }
  }
  read_last_steps(content);
}

// From the end, since steps only grow: long files are rarely read beyond their last evaluation.
void MetricsFile::read_last_steps(const std::string& content) {
  std::size_t damaged = 0;
  std::size_t end = content.size();
  while (end > 0 && (last_step_ < 0 || last_eval_step_ < 0)) {
    const auto before = content.rfind('\n', end - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    const std::string line = content.substr(begin, end - begin);
    end = before == std::string::npos ? 0 : before;
    auto& last = is_evaluation(line) ? last_eval_step_ : last_step_;
    if (line.empty() || last >= 0) continue;
    last = step_of(line);
    const bool was_cut_off = begin + line.size() == content.size();
    if (last < 0 && !was_cut_off) ++damaged;
  }
  if (damaged > 0)
    log::warn(text(file_.path(), ": ", damaged, " lines are no reports; they are left as they are"));
}

void MetricsFile::append(const StepReport& report) {
  if (report.step <= last_step_) return;
  file_.append(json_line(report));
  last_step_ = report.step;
}

void MetricsFile::append(const EvalReport& report) {
  if (report.step <= last_eval_step_) return;
  file_.append(json_line(report));
  last_eval_step_ = report.step;
}

}  // namespace lockstep::telemetry
