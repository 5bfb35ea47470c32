#pragma once

#include <string>

namespace lockstep::mpi {

/// MPI from its initialisation to its end, with MPI_THREAD_MULTIPLE: one object, in `main`, before any
/// Communicator.
class Environment {
 public:
  /// Throws ApiError when the library grants less than MPI_THREAD_MULTIPLE.
  Environment(int* argc, char*** argv);

  /// Collective: finalizes. While an exception unwinds it aborts the job instead, since the other ranks may
  /// be waiting in a collective that this rank will never join, and MPI_Finalize would wait for them for
  /// ever.
  ~Environment();

  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

/// Name and version of the MPI library: "Open MPI 4.1.4".
std::string library_version();

}  // namespace lockstep::mpi
