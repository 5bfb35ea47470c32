#pragma once

#include <cstdlib>
#include <string>

#include "cuda/device.hpp"
#include "support/catch.hpp"

namespace lockstep::test {

/// True where a GPU can be used. Elsewhere it warns, and the test case returns; with LOCKSTEP_REQUIRE_GPU=1
/// it fails. Cases that call it carry the tag [gpu] and link lockstep::cuda.
inline bool gpu_here() {
  if (cuda::device_count() > 0) return true;
  const char* const required = std::getenv("LOCKSTEP_REQUIRE_GPU");
  if (required != nullptr && std::string(required) == "1")
    FAIL("LOCKSTEP_REQUIRE_GPU=1, but there is no GPU");
  WARN("no GPU here: not run");
  return false;
}

}  // namespace lockstep::test
