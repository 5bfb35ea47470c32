#pragma once

#include <string>
#include <vector>

#include "config/flags.hpp"

namespace lockstep::config {

/// config.json: one object, one member per flag, keyed by the flag's name; from_json(to_json(s)) restores
/// every member bit for bit.
std::string to_json(const FlagTable& flags);

/// Reads such an object into the settings that `flags` is bound to; a flag that it lacks keeps its value (the
/// file is of an older version). Throws DataError(source, key) for what is not JSON, an unknown key, or a
/// value that the flag does not take.
void from_json(const FlagTable& flags, const std::string& json, const std::string& source);

/// One "flag = value" line per setting: equal texts are equal settings.
std::string settings_text(const FlagTable& flags);

std::string to_json(TrainSettings settings);
TrainSettings train_settings_from_json(const std::string& json, const std::string& source);
std::string settings_text(TrainSettings settings);
std::string settings_text(EvalSettings settings);
std::string settings_text(GenerateSettings settings);

/// What keeps a run of settings `now` from continuing one of settings `old`: one line for each setting that
/// must match and does not, with both values; empty when it may. The length of a run may change, but not the
/// length of a schedule that decays over it.
std::vector<std::string> differences(TrainSettings old, TrainSettings now);

}  // namespace lockstep::config
