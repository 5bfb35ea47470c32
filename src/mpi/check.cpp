#include "mpi/check.hpp"

#include <mpi.h>

namespace lockstep::mpi {

void check(int status, std::string_view call, SourceLine where) {
  if (status == MPI_SUCCESS) return;
  char words[MPI_MAX_ERROR_STRING] = "no explanation";
  int length = 0;
  if (MPI_Error_string(status, words, &length) != MPI_SUCCESS) length = 0;
  throw ApiError("MPI", call, status, words, ExitCode::unavailable, where);
}

}  // namespace lockstep::mpi
