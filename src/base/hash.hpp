#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// XXH3-64 of `size` bytes (xxHash, BSD-2-Clause): checksums of files and keys of settings; no defence
/// against an attacker.
std::uint64_t hash_bytes(const void* bytes, std::size_t size, std::uint64_t seed = 0);
std::uint64_t hash_text(std::string_view line, std::uint64_t seed = 0);

/// Sixteen lower-case hexadecimal digits.
std::string hex(std::uint64_t value);

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64-bit words whose output bits all depend
/// on all input bits.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// One key from many words; order matters.
template <class... Words>
constexpr std::uint64_t mix_all(Words... words) {
  std::uint64_t key = 0;
  ((key = mix(key ^ static_cast<std::uint64_t>(words))), ...);
  return key;
}

}  // namespace lockstep
