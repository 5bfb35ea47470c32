#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include "base/error.hpp"

namespace lockstep::cuda {

/// Throws ApiError("CUDA", call, status, the runtime's words) unless `status` is success. The exit code is
/// `internal` where we called it wrongly and `unavailable` where the device, its driver or its memory failed.
void check(cudaError_t status, std::string_view call, SourceLine where = SourceLine::here());

}  // namespace lockstep::cuda
