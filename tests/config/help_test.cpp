#include "config/help.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::config;
using lockstep::test::contains;

TEST_CASE("docs/flags.md is what the flag table prints") {
  const std::string page = flags_page();
  const std::string expected = LOCKSTEP_BINARY_DIR "/flags.md";
  std::ofstream(expected) << page;
  INFO("the page as it should be: " << expected << " (lockstep --help-markdown prints it)");
  CHECK(read_text_file(LOCKSTEP_SOURCE_DIR "/docs/flags.md") == page);
}

TEST_CASE("help lists every flag with its default and is at most 100 columns wide") {
  TrainSettings defaults;
  const std::string page = help_text<TrainSettings>();
  for (const auto& flag : bind(defaults)) {
    CAPTURE(flag.name);
    CHECK_THAT(page, contains(std::holds_alternative<bool*>(flag.field) ? "--[no-]" + flag.name
                                                                        : "--" + flag.name + " "));
  }
  for (const auto& line : split(page, '\n')) CHECK(line.size() <= 100);
  CHECK_THAT(page, contains("Usage: lockstep train --model NAME"));
  CHECK_THAT(page, contains("--model NAME                model of the registry (required)\n"));
  CHECK_THAT(page, contains("--lr X                      peak learning rate [0.001]\n"));
  CHECK_THAT(page, contains("--[no-]check-replicas "));
  CHECK_THAT(page, contains("masters and moments are always\n                              FP32; one of "
                            "fp32, tf32, bf16, fp16 [fp16]\n"));
  CHECK_THAT(page, contains("[64MiB]"));
  CHECK_THAT(page, contains("--config FILE.ini"));
}

TEST_CASE("help of a command with one argument shows it without dashes and knows no --config") {
  const std::string page = help_text<DataInspectSettings>();
  CHECK_THAT(page, contains("Usage: lockstep data inspect PATH\n"));
  CHECK_THAT(page, contains("\n  PATH                        a folder of HDF5 shards, or one shard\n"));
  CHECK_THAT(page, !contains("--config"));
}

TEST_CASE("no command name is listed twice") {
  std::vector<std::string> names;
  for (const auto& command : all_commands()) names.push_back(command.name);
  CHECK(names == std::vector<std::string>{"train", "eval", "generate", "pack csv", "pack text",
                                          "data inspect", "data verify", "checkpoint ls",
                                          "checkpoint verify"});
}
