#include "telemetry/progress.hpp"

#include <limits>
#include <sstream>

#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::telemetry;
using config::ProgressMode;

namespace {

StepReport report_of(std::int64_t step) {
  StepReport report;
  report.step = step;
  report.epoch = 1.92;
  report.loss = 0.18342;
  report.lr = 9.1e-4;
  report.loss_scale = 65536;
  report.samples_per_second = 3210.4;
  report.step_seconds = 0.031;
  return report;
}

const Surroundings kTerminal = {.output_is_terminal = true, .columns = 120};

}  // namespace

TEST_CASE("the progress line says where the run is, how it does and when it ends") {
  CHECK(progress_line(report_of(120), 500, 11.8, 120) ==
        "step 120/500  epoch 1.9  loss 0.1834  lr 9.1e-04  scale 65536  3,210 samples/s  12 s left");
  CHECK(progress_line(report_of(120), 0, -1, 120) ==
        "step 120  epoch 1.9  loss 0.1834  lr 9.1e-04  scale 65536  3,210 samples/s");
  auto report = report_of(120);
  report.loss_scale = 1;
  report.skipped_steps = 3;
  report.tokens_per_second = 1234567;
  report.mfu = 0.415;
  CHECK(progress_line(report, 500, 3725, 140) ==
        "step 120/500  epoch 1.9  loss 0.1834  lr 9.1e-04  skipped 3  1,234,567 tokens/s  MFU 41.5 %  1h 02m "
        "left");
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.tokens_per_second = std::nullopt;
  report.samples_per_second = 0.5;
  CHECK(progress_line(report, 500, 60, 52) == "step 120/500  loss nan  0.50 samples/s  1m 00s left");
}

TEST_CASE("a narrow terminal gets the parts that matter most, in one row") {
  for (int columns = 1; columns < 120; ++columns) {
    const auto line = progress_line(report_of(120), 500, 11.8, columns);
    CHECK(line.size() <= static_cast<std::size_t>(columns));
  }
  CHECK(progress_line(report_of(120), 500, 11.8, 79) ==
        "step 120/500  epoch 1.9  loss 0.1834  scale 65536  3,210 samples/s  12 s left");
  CHECK(progress_line(report_of(120), 500, 11.8, 30) == "step 120/500  loss 0.1834");
}

TEST_CASE("the last column of a terminal stays free, since a full row would break the line") {
  const std::string whole = progress_line(report_of(120), 120, 0, 200);
  for (const int spare : {0, 1}) {
    std::ostringstream out;
    const Surroundings here = {.output_is_terminal = true, .columns = static_cast<int>(whole.size()) + spare};
    Progress progress(ProgressMode::terminal, 0, 120, out, here);
    progress.report(report_of(120));
    CHECK(out.str().ends_with(whole) == (spare == 1));
  }
}

TEST_CASE("an evaluation prints its loss and accuracy") {
  EvalReport report = {.step = 500,
                       .epoch = 8,
                       .eval_loss = 0.0712,
                       .eval_accuracy = 0.979,
                       .eval_perplexity = std::nullopt,
                       .samples = 1000};
  CHECK(progress_line(report) == "step 500  eval loss 0.0712  eval accuracy 97.90 % of 1,000 samples");
  report.eval_accuracy = std::nullopt;
  CHECK(progress_line(report) == "step 500  eval loss 0.0712  1,000 samples");
  report.eval_perplexity = 1.0738;
  CHECK(progress_line(report) == "step 500  eval loss 0.0712  perplexity 1.07 of 1,000 samples");
}

TEST_CASE("automatic progress trusts the launcher's word before the terminal that mpirun gives its ranks") {
  const auto mode = [](Surroundings here) { return resolve(ProgressMode::automatic, here); };
  CHECK(mode({}) == ProgressMode::plain);
  CHECK(mode({.output_is_terminal = true}) == ProgressMode::terminal);
  CHECK(mode({.output_is_terminal = true, .started_by_mpirun = true}) == ProgressMode::plain);
  CHECK(mode({.started_by_mpirun = true, .launcher_says = "1"}) == ProgressMode::terminal);
  CHECK(mode({.output_is_terminal = true, .launcher_says = "0"}) == ProgressMode::plain);
  CHECK(mode({.output_is_terminal = true, .dumb = true}) == ProgressMode::plain);
  CHECK(resolve(ProgressMode::terminal, {}) == ProgressMode::terminal);
  CHECK(resolve(ProgressMode::off, kTerminal) == ProgressMode::off);
}

TEST_CASE("without a terminal every report is a line, and other ranks print nothing") {
  std::ostringstream out;
  {
    Progress progress(ProgressMode::plain, 0, 500, out, {});
    progress.note("checkpoint saved");
    progress.report(report_of(120));
    progress.report(report_of(130));
  }
  CHECK(out.str() ==
        "checkpoint saved\n"
        "step 120/500  epoch 1.9  loss 0.1834  lr 9.1e-04  scale 65536  3,210 samples/s  12 s left\n"
        "step 130/500  epoch 1.9  loss 0.1834  lr 9.1e-04  scale 65536  3,210 samples/s  11 s left\n");
  std::ostringstream other;
  {
    Progress progress(ProgressMode::terminal, 1, 500, other, kTerminal);
    progress.report(report_of(120));
    progress.note("checkpoint saved");
  }
  CHECK(other.str().empty());
}

TEST_CASE("a terminal shows one line that is drawn again, not more often than a person can read") {
  std::ostringstream out;
  {
    Progress progress(ProgressMode::terminal, 0, 100000, out, kTerminal);
    for (int step = 1; step <= 10000; ++step) progress.report(report_of(step));
    CHECK(out.str().size() < 10000);
    CHECK(out.str().find('\n') == std::string::npos);
  }
  CHECK_THAT(out.str(), test::contains("step 10000/100000"));  // the last is shown in the end
  CHECK(out.str().back() == '\n');
}

TEST_CASE("a note on a terminal stays above the progress line") {
  std::ostringstream out;
  Progress progress(ProgressMode::terminal, 0, 2, out, kTerminal);
  progress.report(report_of(2));
  const std::string line = progress_line(report_of(2), 2, 0, 119);
  progress.note("saved");
  CHECK(out.str() == "\r\x1b[K" + line + "\r\x1b[Ksaved\n\r\x1b[K" + line);
  progress.finish();
  progress.finish();
  CHECK(out.str().ends_with(line + "\n"));
}
