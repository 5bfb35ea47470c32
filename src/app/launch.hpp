#pragma once

namespace lockstep::app {

/// Whether a launcher says that this process is one of several, and which. Only for what is decided before
/// MPI starts: who prints --help, and whether a usage error is to be shared. MPI's own word counts
/// afterwards.
struct Launch {
  bool several = false;
  bool prints = true;
};
Launch launch_from_environment();

}  // namespace lockstep::app
