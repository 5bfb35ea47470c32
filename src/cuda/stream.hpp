#pragma once

#include <optional>

#include <cuda_runtime_api.h>

#include "base/handle.hpp"

namespace lockstep::cuda {

struct EventTraits {
  using Type = cudaEvent_t;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept;
};

struct StreamTraits {
  using Type = cudaStream_t;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept;
};

/// Whether seconds can be told between two events; that costs a little.
enum class Timing { off, on };

/// A point in a stream's work. Made on the calling thread's device.
class Event {
 public:
  explicit Event(Timing timing = Timing::off);
  cudaEvent_t raw() const { return handle_.get(); }

  /// Moves the event behind all work that `stream` holds now.
  void record(cudaStream_t stream);
  /// True when the work before it is done, or when it was never recorded. Not inside graph capture.
  bool done() const;
  /// Blocks the host until it is done.
  void synchronize() const;
  /// Seconds that the device took from `earlier` to this event, both with timing and done; none where it
  /// cannot tell.
  std::optional<double> seconds_since(const Event& earlier) const;

 private:
  Handle<EventTraits> handle_;
};

enum class Priority { normal, high };

/// A stream that does not wait for the legacy default stream. Made on the calling thread's device.
class Stream {
 public:
  explicit Stream(Priority priority = Priority::normal);
  cudaStream_t raw() const { return handle_.get(); }

  /// Later work of this stream starts after `event`; the host does not wait.
  void wait(const Event& event);
  /// Blocks the host until all work of the stream is done.
  void synchronize() const;

 private:
  Handle<StreamTraits> handle_;
};

/// The same for a stream that another library owns.
void wait(cudaStream_t stream, const Event& event);
void synchronize(cudaStream_t stream);

/// True while `stream` records a graph.
bool is_capturing(cudaStream_t stream);

}  // namespace lockstep::cuda
