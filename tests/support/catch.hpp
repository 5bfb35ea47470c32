#pragma once

// One header for Catch2 2.13 (Debian 12) and 3.x (Ubuntu 24.04). Include Torch before it: Torch defines a
// CHECK of its own.
#ifdef LOCKSTEP_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#endif

#ifdef LOCKSTEP_CATCH2_V2
namespace lockstep::test {
inline auto contains(const std::string& part) {
  return Catch::Matchers::Contains(part);
}
}  // namespace lockstep::test
#else
namespace lockstep::test {
inline auto contains(const std::string& part) {
  return Catch::Matchers::ContainsSubstring(part);
}
}  // namespace lockstep::test
#endif
