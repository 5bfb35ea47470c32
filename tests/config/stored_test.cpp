#include "config/stored.hpp"

#include <cmath>

#include "base/text.hpp"
#include "config/message.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::config;
using lockstep::test::failure;

namespace {

// A value in the row's range that is not its default; doubles whose shortest text has 17 digits where the
// range allows.
void change(const Flag& flag) {
  if (auto* const* member = std::get_if<std::string*>(&flag.field)) **member += "changed \"Ä\\ =#";
  if (auto* const* member = std::get_if<std::int64_t*>(&flag.field)) **member += (std::int64_t{1} << 53) + 1;
  if (auto* const* member = std::get_if<std::uint64_t*>(&flag.field)) **member = 18446744073709551557u;
  if (auto* const* member = std::get_if<bool*>(&flag.field)) **member = !**member;
  if (const auto* bytes = std::get_if<Bytes>(&flag.field)) *bytes->member += 12345;
  if (const auto* choice = std::get_if<Choice>(&flag.field))
    choice->set((choice->get() + 1) % choice->words->size());
  if (auto* const* member = std::get_if<double*>(&flag.field)) {
    **member = std::nextafter(**member, std::isfinite(flag.range.most) ? 0.25 : 1e30);
  }
}

std::string changed_row(const std::string& name) {
  TrainSettings old;
  TrainSettings now;
  change(*bind(now).find(name));
  return join(differences(old, now), "\n");
}

}  // namespace

TEST_CASE("config.json restores every member of the settings bit for bit") {
  TrainSettings settings;
  for (const auto& flag : bind(settings)) change(flag);
  TrainSettings restored = train_settings_from_json(to_json(settings), "config.json");
  const FlagTable after = bind(restored);
  TrainSettings defaults;
  const FlagTable untouched = bind(defaults);
  for (const auto& flag : bind(settings)) {
    CAPTURE(flag.name);
    CHECK(value_text(*after.find(flag.name)) == value_text(flag));
    CHECK(value_text(*untouched.find(flag.name)) != value_text(flag));
  }
  CHECK(restored.optimizer.lr == settings.optimizer.lr);
  CHECK(restored.scaler.max_scale == settings.scaler.max_scale);
  CHECK(restored.seed == 18446744073709551557u);
  CHECK(settings_text(restored) == settings_text(settings));
}

TEST_CASE("config.json of an older version leaves what it lacks at the default") {
  const auto settings = train_settings_from_json(R"({"model": "lenet", "lr": 1})", "config.json");
  CHECK(settings.model.name == "lenet");
  CHECK(settings.optimizer.lr == 1);
  CHECK(settings.optimizer.beta2 == 0.999);
  CHECK(train_settings_from_json(to_json(TrainSettings{}), "config.json").global_batch == 0);
}

TEST_CASE("a damaged config.json is bad data, and the message names the file and the key") {
  const auto refused = [](const std::string& json) {
    return failure([&] { train_settings_from_json(json, "r/config.json"); });
  };
  CHECK(refused("{\"model\": \"lenet\"") == "65 r/config.json: is not a JSON object of settings");
  CHECK(refused("[1]") == "65 r/config.json: is not a JSON object of settings");
  CHECK(refused(R"({"colour": 1})") ==
        "65 r/config.json: holds the setting 'colour', which this version does not know");
  CHECK(refused(R"({"lr": null})") == "65 r/config.json: lr: 'null' is not allowed; give a number >= 0");
  CHECK(refused(R"({"steps": 1.5})") ==
        "65 r/config.json: steps: '1.5' is not allowed; give an integer >= 0");
  CHECK(refused(R"({"check-replicas": 3})") ==
        "65 r/config.json: check-replicas: '3' is not allowed; give yes or no");
}

TEST_CASE("settings as text hold one line a flag") {
  TrainSettings settings;
  settings.model.name = "lenet";
  const auto lines = split(settings_text(settings), '\n');
  CHECK(lines.front() == "model = lenet");
  CHECK(lines.size() == bind(settings).names().size() + 1);
}

TEST_CASE(
    "a resumed run may change exactly its length, intervals, device, paths, loader, progress, graph and "
    "keep") {
  const std::vector<std::string> may_change = {"data",
                                               "eval-data",
                                               "run",
                                               "steps",
                                               "epochs",
                                               "resume",
                                               "device",
                                               "prefetch",
                                               "graph",
                                               "recompute",
                                               "report-every",
                                               "eval-every",
                                               "eval-batch",
                                               "checkpoint-steps",
                                               "keep-checkpoints",
                                               "progress",
                                               "ops",
                                               "max-channels",
                                               "micro-batch",
                                               "overlap",
                                               "first-bucket-bytes",
                                               "bucket-bytes",
                                               "check-replicas"};
  TrainSettings settings;
  for (const auto& flag : bind(settings)) {
    if (flag.name == "schedule-steps") continue;  // by its own rule, below
    CAPTURE(flag.name);
    const bool may = std::find(may_change.begin(), may_change.end(), flag.name) != may_change.end();
    CHECK((changed_row(flag.name) == "") == may);
  }
}

TEST_CASE("a difference names the flag and both values") {
  TrainSettings old;
  old.model.name = "lenet";
  TrainSettings now = old;
  CHECK(differences(old, now).empty());
  now.model.name = "";
  now.optimizer.lr = 0.002;
  now.precision = Precision::bf16;
  CHECK(differences(old, now) == std::vector<std::string>{"--model was lenet and is now empty",
                                                          "--precision was fp16 and is now bf16",
                                                          "--lr was 0.001 and is now 0.002"});
}

TEST_CASE("the length of a run may change, the length of a schedule that decays may not") {
  TrainSettings old;
  old.run.steps = 100;
  TrainSettings now = old;
  now.run.steps = 200;
  CHECK(differences(old, now).empty());
  old.schedule.kind = now.schedule.kind = ScheduleKind::cosine;
  CHECK(differences(old, now) ==
        std::vector<std::string>{
            "--schedule-steps: the schedule ran over 100 steps and would now run over 200 steps; "
            "keep it with --schedule-steps 100"});
  now.schedule.steps = 100;
  CHECK(differences(old, now).empty());
  old.run = {};
  old.run.epochs = 3;
  CHECK(differences(old, now) ==
        std::vector<std::string>{
            "--schedule-steps: the schedule ran over 3 epochs and would now run over 100 steps"});
}
