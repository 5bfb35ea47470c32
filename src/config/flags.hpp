#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "config/settings.hpp"

/// The flag table: every member of every settings struct, bound to the one row that names, explains, bounds,
/// parses, prints and stores it. The parser (config/parse.hpp), `--help` and docs/flags.md (config/help.hpp),
/// config.json and the comparison of runs (config/stored.hpp) and the checks (config/validate.hpp) all walk
/// this table.
namespace lockstep::config {

/// What a run that resumes from a checkpoint may do with a setting.
enum class OnResume { must_match, may_change };

/// The numbers that a flag takes: least <= x <= most, or < where that end is open.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_open = false;
  bool most_open = false;
};
Range at_least(double least);
Range above(double least);
Range from_to(double least, double most);
Range from_to_below(double least, double most);
Range between(double least, double most);  ///< both ends open

/// The words of an enumeration in the order of its values: what users write, what config.json holds.
const std::vector<std::string>& words(Precision);
const std::vector<std::string>& words(DeviceKind);
const std::vector<std::string>& words(GraphMode);
const std::vector<std::string>& words(OverlapMode);
const std::vector<std::string>& words(OptimizerKind);
const std::vector<std::string>& words(ScheduleKind);
const std::vector<std::string>& words(ShuffleMode);
const std::vector<std::string>& words(ProgressMode);
const std::vector<std::string>& words(KernelChoice);

/// The word of one value: word(Precision::fp16) is "fp16".
template <class Enumeration>
const std::string& word(Enumeration value) {
  return words(value)[static_cast<std::size_t>(value)];
}

/// A member that holds one of several words.
struct Choice {
  const std::vector<std::string>* words;
  std::function<std::size_t()> get;
  std::function<void(std::size_t)> set;
};

template <class Enumeration>
Choice choice(Enumeration& member) {
  return {&words(member), [&member] { return static_cast<std::size_t>(member); },
          [&member](std::size_t place) { member = static_cast<Enumeration>(place); }};
}

/// A number of bytes, written as 1048576, 1024KiB or 1MiB.
struct Bytes {
  std::int64_t* member;
};

/// The member that a row reads and writes. It points into the settings that the table was bound to.
using Field = std::variant<std::string*, std::int64_t*, std::uint64_t*, double*, bool*, Bytes, Choice>;

/// One row. `name` is the flag without its dashes, the key of the INI file and the key of config.json.
struct Flag {
  std::string group;  ///< heading of --help
  std::string name;
  std::string value;  ///< what --help writes after the flag: "N", "PATH"; empty for switches
  Field field;
  std::string help;  ///< one sentence with the unit, no full stop
  Range range = {};  ///< of numbers
  OnResume on_resume = OnResume::must_match;
  bool required = false;    ///< an empty text or a zero then means "not given"
  bool positional = false;  ///< an argument without a flag

  Flag& in(Range allowed) {
    range = allowed;
    return *this;
  }
  Flag& may_change() {
    on_resume = OnResume::may_change;
    return *this;
  }
  Flag& must_be_given() {
    required = true;
    return *this;
  }
  Flag& without_a_name() {
    positional = true;
    return *this;
  }
};

/// The rows of one settings struct, in the order of --help. Lives no longer than the settings it is bound to.
class FlagTable {
 public:
  /// Rows added from here on stand under this heading.
  void heading(const std::string& group) { group_ = group; }

  /// The new row, for what else there is to say about it; the reference holds until the next call.
  Flag& add(const std::string& name, const std::string& value, Field field, const std::string& help);

  /// The row of this name, or nullptr.
  const Flag* find(const std::string& name) const;
  std::vector<std::string> names() const;

  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }

 private:
  std::string group_;
  std::vector<Flag> rows_;
};

FlagTable bind(TrainSettings& settings);
FlagTable bind(EvalSettings& settings);
FlagTable bind(GenerateSettings& settings);
FlagTable bind(PackCsvSettings& settings);
FlagTable bind(PackTextSettings& settings);
FlagTable bind(DataInspectSettings& settings);
FlagTable bind(DataVerifySettings& settings);
FlagTable bind(CheckpointLsSettings& settings);
FlagTable bind(CheckpointVerifySettings& settings);

/// What the row takes, as the end of a sentence: "an integer >= 1", "one of fp32, tf32, bf16, fp16"; for
/// texts what --help calls them: "PATH".
std::string allowed(const Flag& flag);

/// The present value as a user would write it. Numbers read back to the same bits.
std::string value_text(const Flag& flag);

/// Reads `value` into the row's member. `place` begins the message: "--lr" or "run.ini:3: lr".
/// Throws UsageError that names the place, the value and what is allowed; the member is then unchanged.
void assign(const Flag& flag, const std::string& value, const std::string& place);

/// Checks a member that was set by other means; throws UsageError like `assign`.
void check_range(const Flag& flag, const std::string& place);

/// True where a required row was not given.
bool is_missing(const Flag& flag);

}  // namespace lockstep::config
