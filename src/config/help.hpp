#pragma once

#include <string>

#include "config/flags.hpp"
#include "config/parse.hpp"

namespace lockstep::config {

/// What `lockstep COMMAND --help` prints: usage, then the flags by group with their defaults, at most 100
/// columns wide. `flags` is bound to settings that hold the defaults.
std::string help_text(const Command& command, const FlagTable& flags);

/// All commands of this version in the order in which help lists them.
std::vector<Command> all_commands();

/// The whole of docs/flags.md.
std::string flags_page();

template <class Settings>
std::string help_text() {
  Settings defaults;
  return help_text(describe(defaults), bind(defaults));
}

}  // namespace lockstep::config
