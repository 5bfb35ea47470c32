#include "base/half.hpp"

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {

namespace {

/// Moves `bits` right by `shift` (1 to 31), rounding to nearest, ties to even.
std::uint32_t shift_right_to_even(std::uint32_t bits, int shift) {
  const std::uint32_t odd = bits >> shift & 1u;
  return (bits + (1u << (shift - 1)) - 1u + odd) >> shift;
}

}  // namespace

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fu;
  std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) {
    const std::uint32_t quiet = fraction != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13 | quiet);
  }
  if (exponent == 0) {  // fraction * 2^-24, exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);  // the payload's upper bits, made quiet
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // 65520 and above are nearer to 2^16 than to 65504
  } else if (magnitude >= 0x38800000u) {
    half = shift_right_to_even(magnitude - 0x38000000u, 13);  // a carry into the exponent is right
  } else if (magnitude >= 0x33000000u) {  // 2^-25, half of the smallest subnormal, and above
    const int exponent = static_cast<int>(magnitude >> 23);
    half = shift_right_to_even((magnitude & 0x7fffffu) | 0x800000u, 126 - exponent);
  }
  return static_cast<std::uint16_t>(sign | half);
}

float bfloat16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  const bool nan = (wide & 0x7fffffffu) > 0x7f800000u;
  return std::bit_cast<float>(wide | (nan ? 0x00400000u : 0u));
}

std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  // Beyond the largest bfloat16 the carry turns the exponent into that of infinity, as it should.
  const std::uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  return static_cast<std::uint16_t>(nan ? (bits >> 16 | 0x40u) : rounded >> 16);
}

namespace {

#if defined(__x86_64__)

bool has_f16c() {
  return __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx");
}

/// Converts whole groups of eight and returns how many elements that were.
__attribute__((target("avx,f16c"))) std::int64_t widen_eights(const std::uint16_t* from, float* to,
                                                              std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits));
  }
  return i;
}

__attribute__((target("avx,f16c"))) std::int64_t narrow_eights(const float* from, std::uint16_t* to,
                                                               std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
  return i;
}

#else

bool has_f16c() {
  return false;
}
std::int64_t widen_eights(const std::uint16_t*, float*, std::int64_t) {
  return 0;
}
std::int64_t narrow_eights(const float*, std::uint16_t*, std::int64_t) {
  return 0;
}

#endif

}  // namespace

void half_to_float(const std::uint16_t* from, float* to, std::int64_t count) {
  std::int64_t i = has_f16c() ? widen_eights(from, to, count) : 0;
  for (; i < count; ++i) to[i] = half_to_float(from[i]);
}

void float_to_half(const float* from, std::uint16_t* to, std::int64_t count) {
  std::int64_t i = has_f16c() ? narrow_eights(from, to, count) : 0;
  for (; i < count; ++i) to[i] = float_to_half(from[i]);
}

void bfloat16_to_float(const std::uint16_t* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = bfloat16_to_float(from[i]);
}

void float_to_bfloat16(const float* from, std::uint16_t* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = float_to_bfloat16(from[i]);
}

}  // namespace lockstep
