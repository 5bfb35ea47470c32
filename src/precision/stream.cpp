#include "precision/stream.hpp"

#include <c10/cuda/CUDAStream.h>

namespace lockstep::precision {

cudaStream_t current_stream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

}  // namespace lockstep::precision
