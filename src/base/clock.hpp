#pragma once

#include <chrono>
#include <string>

namespace lockstep {

/// Seconds since it was made, on the steady clock.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void restart() { start_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// The wall-clock time now, as "2026-11-30T16:34:19Z".
std::string utc_now();

}  // namespace lockstep
