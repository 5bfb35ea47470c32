#include "telemetry/progress.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.hpp"

namespace lockstep::telemetry {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kNewShare = 0.3;  // of a new report in the smoothed time of one step

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int columns_of_terminal() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int columns = std::atoi(value_of("COLUMNS").c_str());
  return columns > 0 ? columns : Surroundings{}.columns;
}

std::string number(const char* format, double value) {
  char digits[48];
  std::snprintf(digits, sizeof digits, format, value);
  return digits;
}

// 3210 is "3,210".
std::string grouped(double value) {
  if (!std::isfinite(value)) return "?";
  std::string digits = number("%.0f", value);
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string rate(double per_second) {
  return per_second < 10 ? number("%.2f", per_second) : grouped(per_second);
}

std::string left(double seconds) {
  return (seconds < 60 ? number("%.0f s", seconds) : format_seconds(seconds)) + " left";
}

// A part of the line; the part of the greatest `rank` is the first to go where the line is too long.
struct Part {
  std::string words;
  int rank;
};

std::string join_to_fit(std::vector<Part> parts, std::size_t columns) {
  while (true) {
    std::string line;
    for (const auto& part : parts) line += (line.empty() ? "" : "  ") + part.words;
    if (line.size() <= columns || parts.size() == 1) return line.substr(0, columns);
    auto least = parts.begin();
    for (auto part = parts.begin(); part != parts.end(); ++part) {
      if (part->rank > least->rank) least = part;
    }
    parts.erase(least);
  }
}

}  // namespace

Surroundings surroundings() {
  return {.output_is_terminal = ::isatty(STDOUT_FILENO) == 1,
          .started_by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr,
          .launcher_says = value_of("LOCKSTEP_TERMINAL"),
          .dumb = value_of("TERM") == "dumb",
          .columns = columns_of_terminal()};
}

config::ProgressMode resolve(config::ProgressMode mode, const Surroundings& here) {
  if (mode != config::ProgressMode::automatic) return mode;
  const bool watched = here.launcher_says.empty() ? here.output_is_terminal && !here.started_by_mpirun
                                                  : here.launcher_says == "1";
  return watched && !here.dumb ? config::ProgressMode::terminal : config::ProgressMode::plain;
}

std::string progress_line(const StepReport& report, std::int64_t total_steps, double seconds_left,
                          int columns) {
  std::vector<Part> parts;
  parts.push_back({text("step ", report.step, total_steps > 0 ? text("/", total_steps) : ""), 0});
  parts.push_back({"epoch " + number("%.1f", report.epoch), 5});
  parts.push_back({"loss " + number("%.4f", report.loss), 1});
  parts.push_back({"lr " + number("%.1e", report.lr), 6});
  if (report.loss_scale != 1) parts.push_back({"scale " + number("%.6g", report.loss_scale), 4});
  if (report.skipped_steps > 0) parts.push_back({text("skipped ", report.skipped_steps), 3});
  parts.push_back({report.tokens_per_second ? rate(*report.tokens_per_second) + " tokens/s"
                                            : rate(report.samples_per_second) + " samples/s",
                   2});
  if (report.mfu) parts.push_back({"MFU " + number("%.1f %%", 100 * *report.mfu), 7});
  if (seconds_left >= 0) parts.push_back({left(seconds_left), 2});
  return join_to_fit(std::move(parts), static_cast<std::size_t>(columns));
}

std::string progress_line(const EvalReport& report) {
  const std::string samples = grouped(static_cast<double>(report.samples)) + " samples";
  const std::string start = text("step ", report.step, "  eval loss ", number("%.4f", report.eval_loss));
  if (report.eval_perplexity)
    return text(start, "  perplexity ", number("%.2f", *report.eval_perplexity), " of ", samples);
  if (!report.eval_accuracy) return text(start, "  ", samples);
  return text(start, "  eval accuracy ", number("%.2f %%", 100 * *report.eval_accuracy), " of ", samples);
}

Progress::Progress(config::ProgressMode mode, int rank, std::int64_t total_steps)
    : Progress(mode, rank, total_steps, std::cout, surroundings()) {}

Progress::Progress(config::ProgressMode mode, int rank, std::int64_t total_steps, std::ostream& out,
                   const Surroundings& here)
    : mode_(rank == 0 ? resolve(mode, here) : config::ProgressMode::off),
      total_steps_(total_steps),
      out_(&out),
      columns_(here.columns) {}

Progress::~Progress() {
  finish();
}

void Progress::report(const StepReport& report) {
  if (mode_ == config::ProgressMode::off) return;
  step_seconds_ = step_seconds_ == 0 ? report.step_seconds
                                     : (1 - kNewShare) * step_seconds_ + kNewShare * report.step_seconds;
  const double seconds_left =
      total_steps_ > 0 ? static_cast<double>(total_steps_ - report.step) * step_seconds_ : -1;
  if (mode_ == config::ProgressMode::plain) {
    *out_ << progress_line(report, total_steps_, seconds_left, std::numeric_limits<int>::max()) << std::endl;
    return;
  }
  // One column stays free: a terminal breaks a line that fills its last one.
  waiting_ = progress_line(report, total_steps_, seconds_left, columns_ - 1);
  if (drawn_.empty() || since_drawn_.seconds() >= kRedrawSeconds || report.step == total_steps_) draw();
}

void Progress::report(const EvalReport& report) {
  note(progress_line(report));
}

void Progress::note(const std::string& line) {
  if (mode_ == config::ProgressMode::off) return;
  if (drawn_.empty()) {
    *out_ << line << std::endl;
    return;
  }
  *out_ << "\r\x1b[K" << line << "\n";
  if (waiting_.empty()) waiting_ = drawn_;
  draw();
}

void Progress::finish() {
  if (!waiting_.empty()) draw();
  if (!drawn_.empty()) *out_ << std::endl;
  drawn_.clear();
}

void Progress::draw() {
  *out_ << "\r\x1b[K" << waiting_ << std::flush;
  drawn_ = std::move(waiting_);
  waiting_.clear();
  since_drawn_.restart();
}

}  // namespace lockstep::telemetry
