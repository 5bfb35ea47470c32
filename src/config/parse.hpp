#pragma once

#include <string>
#include <vector>

#include "config/flags.hpp"

namespace lockstep::config {

/// A command of `lockstep`, as --help and docs/flags.md show it.
struct Command {
  std::string name;        ///< "train", "pack csv"
  std::string summary;     ///< one sentence, no full stop
  std::string usage;       ///< what follows the name in the usage line
  bool reads_ini = false;  ///< takes --config FILE.ini
  bool resumes = false;    ///< continues earlier runs, so each flag says whether it may change
};

Command describe(const TrainSettings&);
Command describe(const EvalSettings&);
Command describe(const GenerateSettings&);
Command describe(const PackCsvSettings&);
Command describe(const PackTextSettings&);
Command describe(const DataInspectSettings&);
Command describe(const DataVerifySettings&);
Command describe(const CheckpointLsSettings&);
Command describe(const CheckpointVerifySettings&);

enum class Request { run, help };

/// Reads the arguments after the command's name into the settings that `flags` is bound to: defaults stay,
/// --config's file comes next, flags come last. `--flag value`, `--flag=value`, `--switch`, `--no-switch`;
/// names in full. With --help anywhere nothing else is looked at. Throws UsageError for an unknown flag (with
/// the nearest known one), a flag given twice, a bad value, a missing or a superfluous argument;
/// DataError(input_missing) when the INI file cannot be read.
Request parse(const Command& command, const FlagTable& flags, const std::vector<std::string>& arguments);

template <class Settings>
Request parse(Settings& settings, const std::vector<std::string>& arguments) {
  return parse(describe(settings), bind(settings), arguments);
}

/// Applies the text of an INI file: `key = value` lines, keys as the flags without dashes; `#` and `;` begin
/// comments; a [heading] is for the reader only. Throws UsageError with `file`, the line and, for an unknown
/// key, the nearest known one.
void apply_ini(const FlagTable& flags, const std::string& file, const std::string& content);

}  // namespace lockstep::config
