#include "cuda/stream.hpp"

#include "cuda/error.hpp"

namespace lockstep::cuda {

// A status of release is dropped: a destructor has nobody to tell, and an error that matters sticks to the
// device.
void EventTraits::release(cudaEvent_t raw) noexcept {
  cudaEventDestroy(raw);
}
void StreamTraits::release(cudaStream_t raw) noexcept {
  cudaStreamDestroy(raw);
}

Event::Event(Timing timing) {
  const unsigned flags = timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(handle_.out(), flags), "cudaEventCreateWithFlags");
}

void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(raw(), stream), "cudaEventRecord");
}

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(raw());
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

void Event::synchronize() const {
  check(cudaEventSynchronize(raw()), "cudaEventSynchronize");
}

std::optional<double> Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, earlier.raw(), raw()) == cudaSuccess) return milliseconds * 1e-3;
  cudaGetLastError();
  return std::nullopt;
}

Stream::Stream(Priority priority) {
  int lowest = 0;
  int highest = 0;  // the smaller number
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(handle_.out(), cudaStreamNonBlocking,
                                     priority == Priority::high ? highest : lowest),
        "cudaStreamCreateWithPriority");
}

void Stream::wait(const Event& event) {
  cuda::wait(raw(), event);
}
void Stream::synchronize() const {
  cuda::synchronize(raw());
}

void wait(cudaStream_t stream, const Event& event) {
  check(cudaStreamWaitEvent(stream, event.raw(), 0), "cudaStreamWaitEvent");
}

void synchronize(cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status == cudaStreamCaptureStatusActive;
}

}  // namespace lockstep::cuda
