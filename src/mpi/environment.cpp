#include "mpi/environment.hpp"

#include <cstdio>
#include <exception>

#include <mpi.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "mpi/check.hpp"

namespace lockstep::mpi {

Environment::Environment(int* argc, char*** argv) {
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    throw ApiError(
        "MPI", "MPI_Init_thread(MPI_THREAD_MULTIPLE)", provided,
        text(library_version(), " was built without threads; use a build with MPI_THREAD_MULTIPLE"),
        ExitCode::configuration);
  }
}

Environment::~Environment() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  if (std::uncaught_exceptions() > 0) {
    std::fputs("lockstep: error: an exception left main; the job is aborted\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::internal));
  }
  MPI_Finalize();
}

std::string library_version() {
  char words[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(words, &length);
  // "Open MPI v4.1.4, package: ..." and "MPICH Version:\t4.0.2\nMPICH Release date: ..."
  std::string line(words);
  line.resize(std::min(line.find_first_of(",\n"), line.size()));
  for (const char* noise : {" Version:", "v"}) {
    const auto at = line.find(noise);
    if (at != std::string::npos) line.erase(at, std::string(noise).size());
  }
  for (auto& c : line) c = c == '\t' ? ' ' : c;
  return line;
}

}  // namespace lockstep::mpi
