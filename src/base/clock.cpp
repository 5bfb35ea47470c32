#include "base/clock.hpp"

#include <ctime>

namespace lockstep {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char line[32];
  std::strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return line;
}

}  // namespace lockstep
