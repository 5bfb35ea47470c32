#include "cuda/error.hpp"

#include "base/text.hpp"

namespace lockstep::cuda {

namespace {

/// Errors that only a wrong call of ours explains; all others come from the device, its driver or its memory.
bool is_wrong_call(cudaError_t status) {
  switch (status) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorIllegalState:
    case cudaErrorIllegalAddress:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
      return true;
    default:
      return false;
  }
}

}  // namespace

void check(cudaError_t status, std::string_view call, SourceLine where) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // errors that do not stick are forgotten, so that the next call is not blamed for this
                       // one
  throw ApiError("CUDA", call, status, text(cudaGetErrorName(status), ": ", cudaGetErrorString(status)),
                 is_wrong_call(status) ? ExitCode::internal : ExitCode::unavailable, where);
}

}  // namespace lockstep::cuda
