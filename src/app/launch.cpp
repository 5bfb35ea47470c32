#include "app/launch.hpp"

#include <cstdlib>
#include <initializer_list>

namespace lockstep::app {

namespace {

// -1 where the variable is not set.
int number_in(const char* variable) {
  const char* words = std::getenv(variable);
  return words == nullptr ? -1 : std::atoi(words);
}

}  // namespace

Launch launch_from_environment() {
  Launch launch;
  // Open MPI's mpirun, MPICH's mpiexec and srun's PMI-2, srun. A batch script has SLURM_NTASKS too: not here.
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (number_in(size) > 1) launch.several = true;
  }
  if (!launch.several) return launch;
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (number_in(rank) < 0) continue;
    launch.prints = number_in(rank) == 0;
    break;
  }
  return launch;
}

}  // namespace lockstep::app
