#include "base/hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep {

std::uint64_t hash_bytes(const void* bytes, std::size_t size, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, size, seed);
}

std::uint64_t hash_text(std::string_view line, std::uint64_t seed) {
  return hash_bytes(line.data(), line.size(), seed);
}

std::string hex(std::uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string digits(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) digits[i] = kDigits[value & 15];
  return digits;
}

}  // namespace lockstep
