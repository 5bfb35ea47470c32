#pragma once

#include <cstdint>

/// IEEE binary16 and bfloat16 as bit patterns. Widening is exact; narrowing rounds once, to nearest even,
/// overflows to infinity, keeps subnormals, and keeps NaN a (quiet) NaN. Bulk versions give the same bits as
/// the scalar ones.
namespace lockstep {

float half_to_float(std::uint16_t bits);
std::uint16_t float_to_half(float value);
float bfloat16_to_float(std::uint16_t bits);
std::uint16_t float_to_bfloat16(float value);

/// `from` and `to` hold `count` elements and do not overlap.
void half_to_float(const std::uint16_t* from, float* to, std::int64_t count);
void float_to_half(const float* from, std::uint16_t* to, std::int64_t count);
void bfloat16_to_float(const std::uint16_t* from, float* to, std::int64_t count);
void float_to_bfloat16(const float* from, std::uint16_t* to, std::int64_t count);

}  // namespace lockstep
