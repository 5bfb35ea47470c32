#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/help.hpp"
#include "config/parse.hpp"
#include "mpi/communicator.hpp"

/// The subcommands, one file each. A command reads its arguments first and starts its work later, so that
/// mistakes are found before MPI, a GPU or a file is touched.
namespace lockstep::app {

using Arguments = std::vector<std::string>;

/// What is left to do once the arguments were read; gives the exit code. One of the two is set: commands of
/// one process never start MPI.
struct Job {
  std::function<int()> alone;
  std::function<int(const mpi::Communicator& world)> on_ranks;
};

/// Each throws UsageError, and DataError where an INI file cannot be read.
Job train(const Arguments& arguments);
Job eval(const Arguments& arguments);
Job generate(const Arguments& arguments);
Job pack_csv(const Arguments& arguments);
Job pack_text(const Arguments& arguments);
Job data_inspect(const Arguments& arguments);
Job data_verify(const Arguments& arguments);
Job checkpoint_ls(const Arguments& arguments);
Job checkpoint_verify(const Arguments& arguments);

/// Prints on standard output.
Job print(const std::string& page);

/// The job of a command: `body(settings)` for settings made from the arguments, or its help page.
template <class Settings, class Body>
Job job_alone(const Arguments& arguments, Body body) {
  Settings settings;
  if (config::parse(settings, arguments) == config::Request::help)
    return print(config::help_text<Settings>());
  return {.alone = [settings, body] { return body(settings); }, .on_ranks = {}};
}

template <class Settings, class Body>
Job job_on_ranks(const Arguments& arguments, Body body) {
  Settings settings;
  if (config::parse(settings, arguments) == config::Request::help)
    return print(config::help_text<Settings>());
  return {.alone = {},
          .on_ranks = [settings, body](const mpi::Communicator& world) { return body(settings, world); }};
}

}  // namespace lockstep::app
