#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::config {

/// "1x28x28" or "1,28,28" as {1, 28, 28}; "30" as {30}. Throws UsageError that begins with `place` for
/// anything but up to four sizes of at least 1 whose product is below 2^31.
std::vector<std::int64_t> read_shape(const std::string& value, const std::string& place);

}  // namespace lockstep::config
