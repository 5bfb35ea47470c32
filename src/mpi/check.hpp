#pragma once

#include <string_view>

#include "base/error.hpp"

namespace lockstep::mpi {

/// Throws ApiError("MPI", call, status, MPI_Error_string) unless `status` is MPI_SUCCESS.
void check(int status, std::string_view call, SourceLine where = SourceLine::here());

}  // namespace lockstep::mpi
