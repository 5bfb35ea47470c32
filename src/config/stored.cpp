#include "config/stored.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::config {

namespace {

using Json = nlohmann::ordered_json;

// Numbers and switches as such; all else as a user would write it.
Json json_of(const Flag& flag) {
  if (const auto* member = std::get_if<std::int64_t*>(&flag.field)) return **member;
  if (const auto* member = std::get_if<std::uint64_t*>(&flag.field)) return **member;
  if (const auto* member = std::get_if<double*>(&flag.field)) return **member;
  if (const auto* member = std::get_if<bool*>(&flag.field)) return **member;
  if (const auto* bytes = std::get_if<Bytes>(&flag.field)) return *bytes->member;
  return value_text(flag);
}

// Through the same checks as a value that a user gave.
std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

bool decays(const ScheduleSettings& schedule) {
  return schedule.kind != ScheduleKind::constant;
}

// The length that a schedule runs over, which is the run's own where none is given.
std::string schedule_length(const TrainSettings& settings) {
  if (settings.schedule.steps > 0) return text(settings.schedule.steps, " steps");
  return settings.run.steps > 0 ? text(settings.run.steps, " steps") : text(settings.run.epochs, " epochs");
}

std::string quoted(const std::string& value) {
  return value.empty() ? "empty" : value;
}

}  // namespace

std::string to_json(const FlagTable& flags) {
  Json object = Json::object();
  for (const auto& flag : flags) object[flag.name] = json_of(flag);
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void from_json(const FlagTable& flags, const std::string& json, const std::string& source) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object()) throw DataError(source, "", -1, "is not a JSON object of settings");
  for (const auto& [key, value] : object.items()) {
    const Flag* flag = flags.find(key);
    if (flag == nullptr) {
      throw DataError(source, "", -1,
                      text("holds the setting '", key, "', which this version does not know"));
    }
    try {
      // A required row of a command that was never run is empty or zero: outside its range, and yet what was
      // stored.
      if (!flag->required || text_of(value) != value_text(*flag)) assign(*flag, text_of(value), key);
    } catch (const UsageError& error) {
      throw DataError(source, "", -1, error.what());
    }
  }
}

std::string settings_text(const FlagTable& flags) {
  std::string lines;
  for (const auto& flag : flags) lines += text(flag.name, " = ", value_text(flag), "\n");
  return lines;
}

std::string to_json(TrainSettings settings) {
  return to_json(bind(settings));
}

TrainSettings train_settings_from_json(const std::string& json, const std::string& source) {
  TrainSettings settings;
  from_json(bind(settings), json, source);
  return settings;
}

std::string settings_text(TrainSettings settings) {
  return settings_text(bind(settings));
}
std::string settings_text(EvalSettings settings) {
  return settings_text(bind(settings));
}
std::string settings_text(GenerateSettings settings) {
  return settings_text(bind(settings));
}

std::vector<std::string> differences(TrainSettings old, TrainSettings now) {
  std::vector<std::string> lines;
  const FlagTable before = bind(old);
  for (const auto& flag : bind(now)) {
    if (flag.on_resume == OnResume::may_change || flag.name == "schedule-steps") continue;
    const std::string was = value_text(*before.find(flag.name));
    const std::string is = value_text(flag);
    if (was != is) lines.push_back(text("--", flag.name, " was ", quoted(was), " and is now ", quoted(is)));
  }
  // A constant rate has no length to keep; any other schedule must go on over the same steps.
  if (decays(old.schedule) && decays(now.schedule) && schedule_length(old) != schedule_length(now)) {
    lines.push_back(text("--schedule-steps: the schedule ran over ", schedule_length(old),
                         " and would now run over ", schedule_length(now),
                         old.run.steps > 0 || old.schedule.steps > 0
                             ? text("; keep it with --schedule-steps ",
                                    old.schedule.steps > 0 ? old.schedule.steps : old.run.steps)
                             : ""));
  }
  return lines;
}

}  // namespace lockstep::config
