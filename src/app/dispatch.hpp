#pragma once

#include <string>

#include "app/commands.hpp"

namespace lockstep::app {

/// The job that a command line asks for, program name left out: a command's, or a page to print (--help,
/// --version,
/// --help-markdown). Throws UsageError with the nearest command and the list for a command that is not there.
Job dispatch(const Arguments& line);

/// True where the line asks for a page and nothing else will be done.
bool asks_for_page(const Arguments& line);

}  // namespace lockstep::app
