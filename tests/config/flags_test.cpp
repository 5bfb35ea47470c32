#include "config/flags.hpp"

#include <cmath>
#include <set>

#include "config/message.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::config;
using lockstep::test::failure;

namespace {

struct Row {
  TrainSettings settings;
  FlagTable table = bind(settings);

  std::string set(const std::string& name, const std::string& value) {
    return failure([&] { assign(*table.find(name), value, "--" + name); });
  }
  std::string get(const std::string& name) { return value_text(*table.find(name)); }
};

}  // namespace

TEST_CASE("every flag has a name of its own, an explanation and a default that it takes itself") {
  TrainSettings settings;
  std::set<std::string> names;
  for (const auto& flag : bind(settings)) {
    CAPTURE(flag.name);
    CHECK(names.insert(flag.name).second);
    CHECK_FALSE(flag.group.empty());
    CHECK_FALSE(flag.help.empty());
    CHECK(flag.help.back() != '.');
    CHECK(flag.value.empty() == std::holds_alternative<bool*>(flag.field));
    if (!flag.required) CHECK(failure([&] { assign(flag, value_text(flag), flag.name); }) == "");
  }
}

TEST_CASE("no two flags write the same member") {
  TrainSettings settings;
  const FlagTable table = bind(settings);
  std::set<const void*> members;
  std::size_t choices = 0;
  for (const auto& flag : table) {
    CAPTURE(flag.name);
    const void* member = std::visit(
        [](const auto& field) -> const void* {
          using Kind = std::decay_t<decltype(field)>;
          if constexpr (std::is_same_v<Kind, Bytes>) return field.member;
          if constexpr (std::is_pointer_v<Kind>) return field;
          return nullptr;
        },
        flag.field);
    if (member == nullptr) {
      ++choices;
    } else {
      CHECK(members.insert(member).second);
    }
  }
  CHECK(choices == 9);
  // A new member of the settings is bound here and counted there: 56 rows, eight of them enumerations.
  CHECK(table.names().size() == 56);
}

TEST_CASE("numbers are read whole, finite and in range, and a refused one leaves the old value") {
  Row row;
  CHECK(row.set("lr", "0.5") == "");
  const std::string ending = "' is not allowed; give a number >= 0";
  for (const char* bad :
       {"10x", "", " 1", "1 ", "nan", "-nan", "inf", "-inf", "-1", "0x10", "1,5", "+1", "--1", "1e"}) {
    CAPTURE(bad);
    CHECK(row.set("lr", bad) == std::string("64 --lr: '") + bad + ending);
  }
  CHECK(row.set("lr", "1e999") == "64 --lr: '1e999" + ending + ", within the range of a double");
  CHECK(row.settings.optimizer.lr == 0.5);
}

TEST_CASE("integers take no fraction, exponent, sign or overflow") {
  Row row;
  CHECK(row.set("steps", "9223372036854775807") == "");
  CHECK(row.settings.run.steps == std::numeric_limits<std::int64_t>::max());
  for (const char* bad : {"10x", "", "1.5", "1e3", "-1", "+1", "ten"}) {
    CAPTURE(bad);
    CHECK(row.set("steps", bad) ==
          std::string("64 --steps: '") + bad + "' is not allowed; give an integer >= 0");
  }
  CHECK(
      row.set("steps", "9223372036854775808") ==
      "64 --steps: '9223372036854775808' is not allowed; give an integer >= 0, at most 9223372036854775807");
  CHECK(row.set("global-batch", "0") == "64 --global-batch: '0' is not allowed; give an integer >= 1");
  CHECK(row.set("seed", "18446744073709551615") == "");
  CHECK(row.settings.seed == std::numeric_limits<std::uint64_t>::max());
  CHECK(row.set("seed", "-1") == "64 --seed: '-1' is not allowed; give an integer >= 0");
}

TEST_CASE("ranges are open where their text says so") {
  Row row;
  CHECK(row.set("growth-factor", "1") == "64 --growth-factor: '1' is not allowed; give a number > 1");
  CHECK(row.set("growth-factor", "1.0001") == "");
  CHECK(row.set("backoff-factor", "1") ==
        "64 --backoff-factor: '1' is not allowed; give a number > 0 and < 1");
  CHECK(row.set("backoff-factor", "0") ==
        "64 --backoff-factor: '0' is not allowed; give a number > 0 and < 1");
  CHECK(row.set("beta1", "0") == "");
  CHECK(row.set("beta1", "1") == "64 --beta1: '1' is not allowed; give a number >= 0 and < 1");
  CHECK(row.set("final-lr-fraction", "1") == "");
  CHECK(row.set("final-lr-fraction", "1.01") ==
        "64 --final-lr-fraction: '1.01' is not allowed; give a number >= 0 and <= 1");
  CHECK(row.set("max-scale", "1e39") ==
        "64 --max-scale: '1e39' is not allowed; give a number > 0 and <= 3.4028234663852886e+38");
}

TEST_CASE("bytes take binary units") {
  Row row;
  CHECK(row.set("bucket-bytes", "512KiB") == "");
  CHECK(row.settings.reduce.bucket_bytes == 512 * 1024);
  CHECK(row.get("bucket-bytes") == "512KiB");
  CHECK(row.set("bucket-bytes", "1500") == "");
  CHECK(row.get("bucket-bytes") == "1500");
  for (const char* bad : {"0", "-1MiB", "1MB", "MiB", "1.5MiB", "99999999999GiB", "17179869185GiB"}) {
    CAPTURE(bad);
    CHECK(row.set("bucket-bytes", bad) ==
          std::string("64 --bucket-bytes: '") + bad +
              "' is not allowed; give a number of bytes such as 65536, 64KiB, 1MiB or 2GiB, >= 1");
  }
}

TEST_CASE("a word outside its enumeration is refused with the whole list") {
  Row row;
  CHECK(row.set("precision", "fp8") ==
        "64 --precision: 'fp8' is not allowed; give one of fp32, tf32, bf16, fp16");
  CHECK(row.set("device", "") == "64 --device: '' is not allowed; give one of auto, cuda, cpu");
  CHECK(row.set("schedule", "warmup-stable-decay") == "");
  CHECK(row.settings.schedule.kind == ScheduleKind::warmup_stable_decay);
  CHECK(word(Precision::tf32) == "tf32");
  CHECK(word(ScheduleKind::warmup_stable_decay) == "warmup-stable-decay");
  CHECK(word(OptimizerKind::sgd) == "sgd");
  CHECK(word(ShuffleMode::none) == "none");
  CHECK(word(ProgressMode::off) == "off");
  CHECK(word(GraphMode::off) == "off");
  CHECK(word(DeviceKind::cpu) == "cpu");
}

TEST_CASE("a text with a line break is refused, since settings are compared a line each") {
  Row row;
  CHECK(row.set("run", "a\nmodel = b") ==
        "64 --run: the text holds a line break or another control character; remove it");
  CHECK(row.set("run", "Läufe/a b") == "");
}
