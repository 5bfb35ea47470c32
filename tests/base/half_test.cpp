#include "base/half.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/catch.hpp"

using namespace lockstep;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool half_is_nan(std::uint16_t bits) {
  return (bits & 0x7fff) > 0x7c00;
}
bool bfloat16_is_nan(std::uint16_t bits) {
  return (bits & 0x7fff) > 0x7f80;
}
std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

/// The value of a half by its definition, in double.
double value_by_definition(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

}  // namespace

TEST_CASE("every half widens to its definition and narrows back to itself") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    const float wide = half_to_float(half);
    if (half_is_nan(half)) {
      REQUIRE(std::isnan(wide));
      REQUIRE(float_to_half(wide) == (half | 0x200));  // the same NaN, made quiet
      continue;
    }
    if ((half & 0x7fff) == 0x7c00) {
      REQUIRE(wide == (half & 0x8000 ? -kInfinity : kInfinity));
    } else {
      REQUIRE(wide == value_by_definition(half));
    }
    REQUIRE(std::signbit(wide) == ((half & 0x8000) != 0));
    REQUIRE(float_to_half(wide) == half);
  }
}

TEST_CASE("between two neighbouring halves a float goes to the nearer one, a tie to the even one") {
  for (std::uint32_t i = 0; i < 0x7c00; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);  // of the largest half, this is infinity
    const double above = high == 0x7c00 ? 65536 : value_by_definition(high);
    const auto middle = static_cast<float>((value_by_definition(low) + above) / 2);
    REQUIRE(float_to_half(middle) == (low & 1 ? high : low));
    REQUIRE(float_to_half(std::nextafter(middle, 0.f)) == low);
    REQUIRE(float_to_half(std::nextafter(middle, kInfinity)) == high);
    REQUIRE(float_to_half(-middle) == (0x8000 | (low & 1 ? high : low)));
  }
  CHECK(float_to_half(std::numeric_limits<float>::max()) == 0x7c00);
  CHECK(float_to_half(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(float_to_half(-std::numeric_limits<float>::min()) == 0x8000);
}

TEST_CASE("every bfloat16 is the upper half of a float, and narrowing rounds to nearest even") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto narrow = static_cast<std::uint16_t>(i);
    const float wide = bfloat16_to_float(narrow);
    if (bfloat16_is_nan(narrow)) {
      REQUIRE(std::isnan(wide));
      REQUIRE(float_to_bfloat16(wide) == (narrow | 0x40));
      continue;
    }
    REQUIRE(bits_of(wide) == i << 16);
    REQUIRE(float_to_bfloat16(wide) == narrow);
    if ((narrow & 0x7fff) == 0x7f80) continue;
    const auto up = static_cast<std::uint16_t>(narrow + 1);
    REQUIRE(float_to_bfloat16(std::bit_cast<float>(i << 16 | 0x8000u)) == (narrow & 1 ? up : narrow));
    REQUIRE(float_to_bfloat16(std::bit_cast<float>(i << 16 | 0x7fffu)) == narrow);
    REQUIRE(float_to_bfloat16(std::bit_cast<float>(i << 16 | 0x8001u)) == up);
  }
  CHECK(float_to_bfloat16(std::bit_cast<float>(0x7f800001u)) ==
        0x7fc0);  // a NaN whose payload would be cut off
}

TEST_CASE("bulk conversions give the bits of the scalar ones, at every length and alignment") {
  std::vector<std::uint16_t> patterns(65536 + 5);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(patterns.size());
  half_to_float(patterns.data(), wide.data(), static_cast<std::int64_t>(wide.size()));
  for (std::size_t i = 0; i < wide.size(); ++i)
    REQUIRE(bits_of(wide[i]) == bits_of(half_to_float(patterns[i])));
  bfloat16_to_float(patterns.data(), wide.data(), static_cast<std::int64_t>(wide.size()));
  for (std::size_t i = 0; i < wide.size(); ++i)
    REQUIRE(bits_of(wide[i]) == bits_of(bfloat16_to_float(patterns[i])));

  std::mt19937 random(7);
  std::vector<float> values(100'003);
  for (auto& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  for (std::size_t i = 0; i < values.size(); i += 2)
    values[i] = std::ldexp(float(random()), int(random() % 48) - 60);
  std::vector<std::uint16_t> narrow(values.size() + 1, 0xabcd);
  for (const std::int64_t start : {0, 1, 3}) {
    const auto count = static_cast<std::int64_t>(values.size()) - start;
    float_to_half(values.data() + start, narrow.data(), count);
    for (std::int64_t i = 0; i < count; ++i) REQUIRE(narrow[i] == float_to_half(values[start + i]));
    float_to_bfloat16(values.data() + start, narrow.data(), count);
    for (std::int64_t i = 0; i < count; ++i) REQUIRE(narrow[i] == float_to_bfloat16(values[start + i]));
  }
  CHECK(narrow.back() == 0xabcd);
}
