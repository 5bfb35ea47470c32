#include "config/parse.hpp"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "config/message.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::config;
using lockstep::test::failure;

namespace {

using Arguments = std::vector<std::string>;

const Arguments kRequired = {"--model", "mlp", "--data", "d", "--run", "r", "--global-batch", "64"};

Arguments with(const Arguments& more) {
  Arguments all = kRequired;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TrainSettings train(const Arguments& more) {
  TrainSettings settings;
  REQUIRE(parse(settings, with(more)) == Request::run);
  return settings;
}

std::string refused(const Arguments& more) {
  TrainSettings settings;
  return failure([&] { parse(settings, with(more)); });
}

struct IniFile {
  std::string path =
      (std::filesystem::temp_directory_path() / ("lockstep-" + std::to_string(::getpid()) + ".ini")).string();
  explicit IniFile(const std::string& content) { std::ofstream(path) << content; }
  ~IniFile() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("flags are read in both spellings, negative numbers are values, defaults stay") {
  const auto settings =
      train({"--lr=0.25", "--steps", "7", "--no-check-replicas", "--seed", "9", "--eval-data", ""});
  CHECK(settings.model.name == "mlp");
  CHECK(settings.global_batch == 64);
  CHECK(settings.optimizer.lr == 0.25);
  CHECK(settings.run.steps == 7);
  CHECK(settings.seed == 9);
  CHECK_FALSE(settings.run.check_replicas);
  CHECK(settings.precision == Precision::fp16);
  CHECK(settings.optimizer.beta2 == 0.999);
  CHECK(train({"--check-replicas"}).run.check_replicas);
  CHECK(refused({"--lr", "-1"}) == "64 --lr: '-1' is not allowed; give a number >= 0");
}

TEST_CASE("an unknown flag is named with the nearest known one, and abbreviations are unknown") {
  const std::string ending = " (lockstep train --help lists all)";
  CHECK(refused({"--global-bach", "8"}) ==
        "64 unknown flag --global-bach; did you mean --global-batch?" + ending);
  CHECK(refused({"--precison=fp32"}) == "64 unknown flag --precison; did you mean --precision?" + ending);
  CHECK(refused({"--glob", "8"}).starts_with("64 unknown flag --glob"));
  CHECK(refused({"--no-check-replica"}) ==
        "64 unknown flag --no-check-replica; did you mean --no-check-replicas?" + ending);
  CHECK(refused({"--no-lr", "8"}).starts_with("64 unknown flag --no-lr"));
  CHECK(refused({"--xyzzyxyzzyxyzzy", "8"}) == "64 unknown flag --xyzzyxyzzyxyzzy" + ending);
  CHECK(refused({"-lr", "8"}) == "64 unknown flag -lr; did you mean --lr?" + ending);
  CHECK(refused({"-s", "8"}).starts_with("64 unknown flag -s"));
}

TEST_CASE("a flag given twice is an error, in any of its spellings") {
  CHECK(refused({"--model", "lenet"}) == "64 --model is given twice");
  CHECK(refused({"--lr=1", "--lr", "1"}) == "64 --lr is given twice");
  CHECK(refused({"--check-replicas", "--no-check-replicas"}) == "64 --no-check-replicas is given twice");
}

TEST_CASE("a value that is missing or superfluous is named") {
  CHECK(refused({"--lr"}) == "64 --lr needs a value: a number >= 0");
  CHECK(refused({"--lr="}) == "64 --lr needs a value: a number >= 0");
  CHECK(refused({"--resume="}) == "64 --resume needs a value: auto|never|PATH");
  CHECK(refused({"--lr", "--seed", "3"}).starts_with("64 --lr needs a value"));
  CHECK(refused({"--eval-data", "--sed", "3"}) ==
        "64 --eval-data needs a value, but --sed follows it (a value that begins with dashes: "
        "--eval-data=VALUE)");
  CHECK(train({"--eval-data=--odd"}).data.eval_path == "--odd");
  CHECK(refused({"--no-check-replicas=yes"}) == "64 --no-check-replicas is a switch and takes no value");
  CHECK(refused({"--check-replicas", "yes"}).starts_with("64 unexpected argument 'yes'"));
}

TEST_CASE("an argument without a flag is an error where none is expected") {
  const std::string ending = "; flags begin with -- (lockstep train --help lists them)";
  CHECK(refused({"junk"}) == "64 unexpected argument 'junk'" + ending);
  CHECK(refused({"--", "--lr"}).starts_with("64 unknown flag --lr"));
  DataInspectSettings inspect;
  CHECK(parse(inspect, {"folder"}) == Request::run);
  CHECK(inspect.path == "folder");
  CHECK(failure([] {
          DataInspectSettings settings;
          parse(settings, {"a", "b"});
        }).starts_with("64 unexpected argument 'b'"));
  CHECK(failure([] {
          DataInspectSettings settings;
          parse(settings, {"--PATH", "a"});
        }).starts_with("64 unknown flag --PATH"));
}

TEST_CASE("what a command cannot do without is listed in one message") {
  CHECK(failure([] {
          TrainSettings settings;
          parse(settings, {"--data", "d"});
        }) ==
        "64 lockstep train needs --model NAME, --run DIR, --global-batch G (lockstep train --help explains)");
  CHECK(failure([] {
          DataVerifySettings settings;
          parse(settings, {});
        }) == "64 lockstep data verify needs PATH (lockstep data verify --help explains)");
}

TEST_CASE("--help wins over everything else on the line") {
  TrainSettings settings;
  CHECK(parse(settings, {"--bogus", "--help"}) == Request::help);
}

TEST_CASE("a flag prevails over the file, the file over the default") {
  const IniFile file(
      "# a run\n[Optimizer]\nlr = 0.5   # high\nbeta1=0.8\n\n; off\ncheck-replicas = no\nmodel = lenet\r\n");
  const auto settings = train({"--lr", "0.1", "--config", file.path});
  CHECK(settings.optimizer.lr == 0.1);
  CHECK(settings.optimizer.beta1 == 0.8);
  CHECK(settings.optimizer.beta2 == 0.999);
  CHECK_FALSE(settings.run.check_replicas);
  CHECK(settings.model.name == "mlp");
  CHECK(train({"--check-replicas", "--config=" + file.path}).run.check_replicas);
}

TEST_CASE("a required setting may come from the file") {
  const IniFile file("model = lenet\ndata = d#1\nrun = r\nglobal-batch = 8\n");
  TrainSettings settings;
  CHECK(parse(settings, {"--config", file.path}) == Request::run);
  CHECK(settings.data.path == "d#1");
}

TEST_CASE("an INI file's mistakes are named with file and line") {
  const auto refused_line = [](const std::string& content) {
    TrainSettings settings;
    return failure([&] { apply_ini(bind(settings), "run.ini", content); });
  };
  CHECK(refused_line("\nlearning-rat = 1") ==
        "64 run.ini:2: unknown key 'learning-rat'; keys are the flags without their dashes");
  CHECK(refused_line("global-bach = 1") ==
        "64 run.ini:1: unknown key 'global-bach'; did you mean global-batch?");
  CHECK(refused_line("config = other.ini").starts_with("64 run.ini:1: unknown key 'config'"));
  CHECK(refused_line("a\nlr = 1") == "64 run.ini:1: 'a' is not of the form key = value");
  CHECK(refused_line("lr = 1\nseed = 2\nlr = 1") == "64 run.ini:3: lr is given twice, first in line 1");
  CHECK(refused_line("lr = 10x") == "64 run.ini:1: lr: '10x' is not allowed; give a number >= 0");
  CHECK(refused_line("check-replicas = maybe") ==
        "64 run.ini:1: check-replicas: 'maybe' is not allowed; give yes or no");
  CHECK(refused_line("") == "");
  CHECK(refused({"--config", "/nowhere/run.ini"}).starts_with("66 /nowhere/run.ini: cannot be read"));
  CHECK(refused({"--config"}) == "64 --config needs a value");
}
