#include "telemetry/metrics.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::telemetry;

namespace {

struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lockstep-telemetry-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& content) const {
    const auto name = (path / "metrics.jsonl").string();
    std::ofstream(name, std::ios::binary) << content;
    return name;
  }
};

StepReport at_step(std::int64_t step) {
  StepReport report;
  report.step = step;
  return report;
}

EvalReport evaluated(std::int64_t step) {
  EvalReport report;
  report.step = step;
  return report;
}

// "10 20 e20": steps of the lines, evaluations marked; every line must be an object.
std::string steps_of(const std::string& path) {
  std::vector<std::string> steps;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line);
    steps.push_back(text(object.contains("eval_loss") ? "e" : "", object.at("step").get<std::int64_t>()));
  }
  return join(steps, " ");
}

constexpr const char* kOne = "{\"step\":10,\"loss\":1.5}\n";

}  // namespace

TEST_CASE("a report is one JSON object with the agreed names in the agreed order") {
  StepReport report = {.step = 10,
                       .epoch = 0.5,
                       .loss = 0.1,
                       .lr = 1e-3,
                       .loss_scale = 65536,
                       .skipped_steps = 2,
                       .grad_norm = 3,
                       .samples = 640,
                       .samples_per_second = 1000,
                       .step_seconds = 0.064,
                       .data_wait_seconds = 0,
                       .memory_bytes = 4096,
                       .tokens_per_second = std::nullopt,
                       .mfu = std::nullopt};
  CHECK(
      json_line(report) ==
      R"({"step":10,"epoch":0.5,"loss":0.1,"lr":0.001,"loss_scale":65536.0,"skipped_steps":2,"grad_norm":3.0,)"
      R"("samples":640,"samples_per_second":1000.0,"step_seconds":0.064,"data_wait_seconds":0.0,"memory_bytes":4096})");
  report.tokens_per_second = 5;
  report.mfu = 0.25;
  CHECK_THAT(json_line(report),
             test::contains(R"("samples_per_second":1000.0,"tokens_per_second":5.0,"step_seconds")"));
  CHECK_THAT(json_line(report), test::contains(R"("memory_bytes":4096,"mfu":0.25})"));
  EvalReport eval = {.step = 10,
                     .epoch = 1,
                     .eval_loss = 0.25,
                     .eval_accuracy = std::nullopt,
                     .eval_perplexity = std::nullopt,
                     .samples = 100};
  CHECK(json_line(eval) == R"({"step":10,"epoch":1.0,"eval_loss":0.25,"samples":100})");
  eval.eval_accuracy = 0.5;
  CHECK(json_line(eval) == R"({"step":10,"epoch":1.0,"eval_loss":0.25,"eval_accuracy":0.5,"samples":100})");
  eval.eval_accuracy = std::nullopt;
  eval.eval_perplexity = 1.5;
  CHECK(json_line(eval) == R"({"step":10,"epoch":1.0,"eval_loss":0.25,"eval_perplexity":1.5,"samples":100})");
}

TEST_CASE("numbers read back to the same bits and non-finite ones are null") {
  StepReport report;
  for (const double loss : {0.1, 1.0 / 3, std::nextafter(1.0, 2.0), 5e-324, 1.7976931348623157e308, -0.0}) {
    report.loss = loss;
    CHECK(nlohmann::json::parse(json_line(report)).at("loss").get<double>() == loss);
  }
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.grad_norm = std::numeric_limits<double>::infinity();
  const auto object = nlohmann::json::parse(json_line(report));
  CHECK(object.at("loss").is_null());
  CHECK(object.at("grad_norm").is_null());
}

TEST_CASE("every report is on disk as soon as it was appended") {
  const Folder folder;
  const auto path = (folder.path / "new.jsonl").string();
  MetricsFile metrics(path);
  CHECK(metrics.last_step() == -1);
  metrics.append(at_step(10));
  metrics.append(evaluated(10));
  metrics.append(at_step(20));
  CHECK(steps_of(path) == "10 e10 20");
}

TEST_CASE("a resumed run appends and reports no step twice") {
  const Folder folder;
  const auto path = folder.file("");
  {
    MetricsFile metrics(path);
    for (const int step : {10, 20, 30}) metrics.append(at_step(step));
    metrics.append(evaluated(20));
  }
  const std::string before = read_text_file(path);
  MetricsFile metrics(path);
  CHECK(metrics.last_step() == 30);
  CHECK(metrics.last_eval_step() == 20);
  for (const int step : {20, 30, 40}) metrics.append(at_step(step));
  for (const int step : {20, 40}) metrics.append(evaluated(step));
  CHECK(steps_of(path) == "10 20 30 e20 40 e40");
  CHECK(read_text_file(path).starts_with(before));
}

TEST_CASE("a last line that was cut off while it was written is taken away, and its step is reported again") {
  const Folder folder;
  const std::string second = "{\"step\":20,\"loss\":1.25}";
  for (std::size_t length = 1; length < second.size(); ++length) {
    CAPTURE(length);
    const auto path = folder.file(kOne + second.substr(0, length));
    MetricsFile metrics(path);
    CHECK(metrics.last_step() == 10);
    metrics.append(at_step(10));
    metrics.append(at_step(20));
    CHECK(steps_of(path) == "10 20");
  }
}

TEST_CASE("a whole last line that lacks only its line end is kept") {
  const Folder folder;
  const auto path = folder.file(std::string(kOne) + "{\"step\":20,\"eval_loss\":1.25}");
  MetricsFile metrics(path);
  CHECK(metrics.last_step() == 10);
  CHECK(metrics.last_eval_step() == 20);
  metrics.append(evaluated(20));
  metrics.append(at_step(20));
  CHECK(steps_of(path) == "10 e20 20");
}

TEST_CASE("a damaged line in the middle is left as it is") {
  const Folder folder;
  const std::string damaged = std::string(kOne) + "garbage\n" + "{\"step\":\"x\"}\n";
  const auto path = folder.file(damaged);
  MetricsFile metrics(path);
  CHECK(metrics.last_step() == 10);
  metrics.append(at_step(11));
  CHECK(read_text_file(path).starts_with(damaged));
}

TEST_CASE("a file that cannot be made or written is an error that names it") {
  CHECK_THROWS_WITH(MetricsFile("/nowhere/metrics.jsonl"),
                    test::contains("/nowhere/metrics.jsonl: cannot be opened"));
  if (::access("/dev/full", W_OK) == 0) {
    AppendFile full("/dev/full");
    CHECK_THROWS_WITH(full.append("x"), test::contains("/dev/full: cannot be written: No space left"));
  }
}
