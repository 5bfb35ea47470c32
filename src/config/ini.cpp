#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/parse.hpp"

// Boost reads INI files too, but tells no line numbers.
namespace lockstep::config {

namespace {

constexpr const char* kBlank = " \t\r";

std::string trim(const std::string& line) {
  const auto first = line.find_first_not_of(kBlank);
  if (first == std::string::npos) return {};
  return line.substr(first, line.find_last_not_of(kBlank) - first + 1);
}

// A comment begins where a line does, or after a blank: a path may hold '#'.
std::string without_comment(const std::string& line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool begins = line[i] == '#' || line[i] == ';';
    if (begins && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) return line.substr(0, i);
  }
  return line;
}

const Flag& row_of(const FlagTable& flags, const std::string& key, const std::string& place) {
  const Flag* flag = flags.find(key);
  if (flag != nullptr && !flag->positional) return *flag;
  const std::string close = nearest(key, flags.names());
  throw UsageError(text(
      place, ": unknown key '", key, "'",
      close.empty() ? "; keys are the flags without their dashes" : text("; did you mean ", close, "?")));
}

}  // namespace

void apply_ini(const FlagTable& flags, const std::string& file, const std::string& content) {
  std::map<std::string, int> line_of;
  int number = 0;
  for (const auto& raw : split(content, '\n')) {
    const std::string place = text(file, ":", ++number);
    const std::string line = trim(without_comment(raw));
    if (line.empty() || (line.front() == '[' && line.back() == ']')) continue;
    const auto equals = line.find('=');
    if (equals == std::string::npos)
      throw UsageError(text(place, ": '", line, "' is not of the form key = value"));
    const std::string key = trim(line.substr(0, equals));
    const Flag& flag = row_of(flags, key, place);
    const auto [earlier, is_new] = line_of.emplace(key, number);
    if (!is_new) throw UsageError(text(place, ": ", key, " is given twice, first in line ", earlier->second));
    assign(flag, trim(line.substr(equals + 1)), text(place, ": ", key));
  }
}

}  // namespace lockstep::config
