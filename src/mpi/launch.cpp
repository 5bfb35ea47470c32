#include <cstdlib>

#include "base/error.hpp"
#include "base/text.hpp"
#include "mpi/job.hpp"

namespace lockstep::mpi {

namespace {

/// A launcher's count of tasks, from the variable that it sets for each task.
struct Launcher {
  const char* variable;
  const char* name;
};

// SLURM_NTASKS and its like are not here: a batch script has them too, and there one process is often what is
// meant. srun alone sets SLURM_STEP_NUM_TASKS; MPICH's mpiexec and srun's PMI-2 set PMI_SIZE.
constexpr Launcher kLaunchers[] = {{"SLURM_STEP_NUM_TASKS", "srun"}, {"PMI_SIZE", "the launcher"}};

/// -1 when the variable is unset or no number.
long number_of(const Lookup& environment, const char* variable) {
  const char* const words = environment(variable);
  if (words == nullptr || *words == '\0') return -1;
  char* end = nullptr;
  const long number = std::strtol(words, &end, 10);
  return *end == '\0' ? number : -1;
}

std::vector<std::string> lines_of(const std::string& settings) {
  return split(settings, '\n');
}

std::string line_at(const std::vector<std::string>& lines, std::size_t i) {
  return i < lines.size() ? text("\"", lines[i], "\"") : "no such line";
}

std::string first_difference(const std::string& roots, const std::string& own, int rank) {
  const auto at_root = lines_of(roots);
  const auto here = lines_of(own);
  std::size_t i = 0;
  while (i < at_root.size() && i < here.size() && at_root[i] == here[i]) ++i;
  return text("ranks were started with different settings: rank 0 has ", line_at(at_root, i), ", rank ", rank,
              " has ", line_at(here, i), "; give every rank the same command line and file");
}

}  // namespace

std::string launch_problem(const Lookup& environment, int world_size) {
  // Open MPI's mpirun sets this for its ranks. They may also carry variables of the srun that started
  // mpirun's daemons, with one task a node, so nothing else is looked at.
  if (environment("OMPI_COMM_WORLD_SIZE") != nullptr) return {};
  for (const auto& launcher : kLaunchers) {
    const long tasks = number_of(environment, launcher.variable);
    if (tasks <= world_size) continue;
    return text(launcher.name, " started ", tasks, " tasks (", launcher.variable, "), but MPI sees ",
                world_size, world_size == 1 ? " rank" : " ranks",
                ": the tasks do not know of each other; start with `srun --mpi=pmix` or `mpirun -np ", tasks,
                "`");
  }
  return {};
}

void check_launch(const Communicator& world) {
  const auto problem =
      launch_problem([](const char* name) -> const char* { return std::getenv(name); }, world.size());
  if (!problem.empty()) throw UsageError(problem, ExitCode::configuration);
}

void check_settings_alike(const Communicator& world, const std::string& settings_text) {
  const auto roots = world.broadcast_text(settings_text);
  const bool differs = roots != settings_text;
  const int first =
      static_cast<int>(world.min(static_cast<std::int64_t>(differs ? world.rank() : world.size())));
  if (first == world.size()) return;
  const auto message =
      world.broadcast_text(differs ? first_difference(roots, settings_text, world.rank()) : "", first);
  throw UsageError(message, ExitCode::configuration);
}

}  // namespace lockstep::mpi
