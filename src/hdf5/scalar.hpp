#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::hdf5 {

/// The element types that datasets may hold. float16 is IEEE binary16 as numpy writes it; bfloat16 has 8
/// exponent bits.
enum class Scalar {
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float16,
  bfloat16,
  float32,
  float64
};

/// Bytes of one element.
std::int64_t size_bytes(Scalar scalar);

/// "uint8", "float16", ... as in the enumeration.
std::string_view name(Scalar scalar);

/// The inverse of name(); throws UsageError for an unknown one.
Scalar scalar_named(std::string_view name);

bool is_integer(Scalar scalar);

}  // namespace lockstep::hdf5
