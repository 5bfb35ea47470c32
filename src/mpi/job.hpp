#pragma once

#include <functional>
#include <string>

#include "mpi/communicator.hpp"

/// How the ranks of a job start alike, fail alike and leave together.
namespace lockstep::mpi {

/// Where a rank runs. `local_rank` counts the ranks that share memory with it, whatever the launcher's
/// variables say.
struct Node {
  int local_rank = 0;
  int local_size = 1;
  std::string host;
};

/// Collective.
Node locate(const Communicator& world);

std::string host_name();

/// Collective: runs `body` on rank 0. Its Error (message, exit code) is raised on every rank, marked
/// on_all_ranks.
void on_root(const Communicator& world, const std::function<void()>& body);

/// Collective: every rank runs `body`, which may hold collectives only if all ranks leave it at the same one.
/// If any rank failed, all raise the error of the lowest failing rank, marked on_all_ranks; the message
/// begins with "rank R on host H: " unless all ranks failed alike.
void agree(const Communicator& world, const std::function<void()>& body);

/// Collective: runs `body` and returns its exit code, or the code of the error that it raised.
/// An error known on all ranks is printed once, by rank 0, and all ranks leave in order. Any other is printed
/// by the rank that raised it, and MPI_Abort ends the whole job with its code (70 for exceptions that are no
/// Error): unwinding on into MPI_Finalize would hang, since the other ranks wait in a collective that this
/// rank will never join.
int run_or_abort(const Communicator& world, const std::function<int()>& body);

/// Value of an environment variable, or null; as std::getenv.
using Lookup = std::function<const char*(const char*)>;

/// What is wrong with the way the ranks were launched; empty when nothing is. Local and pure.
std::string launch_problem(const Lookup& environment, int world_size);

/// Throws UsageError (configuration) when the launcher started more tasks than MPI sees ranks, which happens
/// where launcher and MPI do not speak the same PMI: every task would then be rank 0 of 1 and write the same
/// files.
void check_launch(const Communicator& world);

/// Collective: throws UsageError (configuration) on all ranks when a rank's settings, one "name = value" a
/// line, differ from rank 0's; names the first line that differs and both values.
void check_settings_alike(const Communicator& world, const std::string& settings_text);

}  // namespace lockstep::mpi
