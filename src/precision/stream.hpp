#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::precision {

/// The CUDA stream that Torch's operations of this thread go to.
cudaStream_t current_stream();

}  // namespace lockstep::precision
