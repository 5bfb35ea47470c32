#include "config/parse.hpp"

#include <algorithm>
#include <set>

#include <boost/program_options.hpp>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::config {

namespace {

namespace options = boost::program_options;

constexpr auto kStyle = options::command_line_style::allow_long |
                        options::command_line_style::long_allow_adjacent |
                        options::command_line_style::long_allow_next;

bool is_switch(const Flag& flag) {
  return std::holds_alternative<bool*>(flag.field);
}

options::options_description known_options(const Command& command, const FlagTable& flags) {
  options::options_description known;
  auto add = known.add_options();
  for (const auto& flag : flags) {
    if (flag.positional) continue;
    if (is_switch(flag)) {
      add(flag.name.c_str(), "");
      add(("no-" + flag.name).c_str(), "");
    } else {
      add(flag.name.c_str(), options::value<std::string>(), "");
    }
  }
  if (command.reads_ini) add("config", options::value<std::string>(), "");
  return known;
}

[[noreturn]] void refuse_unknown(const Command& command, const FlagTable& flags,
                                 const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known = {"--help"};
  for (const auto& flag : flags) {
    if (flag.positional) continue;
    known.push_back("--" + flag.name);
    if (is_switch(flag)) known.push_back("--no-" + flag.name);
  }
  if (command.reads_ini) known.push_back("--config");
  const std::string close = nearest(name, known);
  throw UsageError(text("unknown flag ", name, close.empty() ? "" : text("; did you mean ", close, "?"),
                        " (lockstep ", command.name, " --help lists all)"));
}

// Boost's exceptions in the words of this program.
options::parsed_options split_arguments(const Command& command, const FlagTable& flags,
                                        const std::vector<std::string>& arguments) {
  const auto known = known_options(command, flags);
  try {
    return options::command_line_parser(arguments).options(known).style(kStyle).run();
  } catch (const options::unknown_option& error) {
    refuse_unknown(command, flags, error.get_option_name());
  } catch (const options::invalid_command_line_syntax& error) {
    const std::string name = error.get_option_name();
    if (error.kind() == options::invalid_command_line_syntax::extra_parameter) {
      throw UsageError(text(name, " is a switch and takes no value"));
    }
    const Flag* flag = flags.find(name.substr(std::min(name.find_first_not_of('-'), name.size())));
    throw UsageError(text(name, " needs a value", flag == nullptr ? "" : text(": ", allowed(*flag))));
  } catch (const options::error& error) {
    throw UsageError(error.what());
  }
}

// Boost hands `--run --seed` over as the value "--seed" of --run.
void refuse_flag_as_value(const options::option& given) {
  if (given.original_tokens.size() == 2 && given.original_tokens[1].starts_with("--")) {
    throw UsageError(text("--", given.string_key, " needs a value, but ", given.original_tokens[1],
                          " follows it (a value that begins with dashes: --", given.string_key, "=VALUE)"));
  }
}

void assign_given(const FlagTable& flags, const options::option& given) {
  const Flag* flag = flags.find(given.string_key);
  if (flag != nullptr) {
    assign(*flag, is_switch(*flag) ? "yes" : given.value.front(), "--" + flag->name);
  } else {
    flag = flags.find(given.string_key.substr(3));  // after "no-"
    assign(*flag, "no", "--" + given.string_key);
  }
}

void assign_positional(const Command& command, const FlagTable& flags,
                       const std::vector<std::string>& arguments) {
  auto next = arguments.begin();
  for (const auto& flag : flags) {
    if (!flag.positional || next == arguments.end()) continue;
    assign(flag, *next++, flag.name);
  }
  if (next == arguments.end()) return;
  if (next->size() > 1 && next->front() == '-') refuse_unknown(command, flags, *next);
  throw UsageError(text("unexpected argument '", *next, "'; flags begin with -- (lockstep ", command.name,
                        " --help lists them)"));
}

void refuse_missing(const Command& command, const FlagTable& flags) {
  std::vector<std::string> missing;
  for (const auto& flag : flags) {
    if (is_missing(flag))
      missing.push_back(flag.positional ? flag.name : text("--", flag.name, " ", flag.value));
  }
  if (missing.empty()) return;
  throw UsageError(text("lockstep ", command.name, " needs ", join(missing, ", "), " (lockstep ",
                        command.name, " --help explains)"));
}

}  // namespace

Request parse(const Command& command, const FlagTable& flags, const std::vector<std::string>& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) return Request::help;
  const auto parsed = split_arguments(command, flags, arguments);
  std::set<std::string> seen;
  std::vector<std::string> positional;
  std::string ini_file;
  for (const auto& given : parsed.options) {
    if (given.string_key.empty()) {
      positional.insert(positional.end(), given.value.begin(), given.value.end());
      continue;
    }
    const bool negated = flags.find(given.string_key) == nullptr && given.string_key.starts_with("no-");
    if (!seen.insert(negated ? given.string_key.substr(3) : given.string_key).second) {
      throw UsageError(text("--", given.string_key, " is given twice"));
    }
    refuse_flag_as_value(given);
    if (given.string_key == "config") ini_file = given.value.front();
  }
  if (!ini_file.empty()) apply_ini(flags, ini_file, read_text_file(ini_file));
  for (const auto& given : parsed.options) {
    if (!given.string_key.empty() && given.string_key != "config") assign_given(flags, given);
  }
  assign_positional(command, flags, positional);
  refuse_missing(command, flags);
  return Request::run;
}

}  // namespace lockstep::config
