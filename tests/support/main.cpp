// The main of every test program. Under mpirun the first failing rank prints its own report and ends the job,
// since a collective after a failure on one rank only would hang.
#ifdef LOCKSTEP_CATCH2_V2
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#else
#include <catch2/catch_session.hpp>
#endif

#include <cstdlib>
#include <iostream>
#include <sstream>

#include <mpi.h>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  Catch::Session session;
  int status = session.applyCommandLine(argc, argv);
  if (status != 0) return status;
  if (size > 1) session.configData().abortAfter = 1;

  std::ostringstream report;
  std::streambuf* const terminal = std::cout.rdbuf();
  if (rank != 0) std::cout.rdbuf(report.rdbuf());  // rank 0 reports successes for all
  status = session.run();
  std::cout.rdbuf(terminal);
  if (status != 0) {
    if (rank != 0) std::cerr << report.str();
    std::cerr << "failed on rank " << rank << " of " << size << std::endl;
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
