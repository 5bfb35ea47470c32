#include "data/permutation.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/hash.hpp"

namespace lockstep::data {

namespace {

constexpr std::uint64_t low_mask(int bits) {
  return (std::uint64_t{1} << bits) - 1;
}

}  // namespace

Permutation::Permutation(std::int64_t count, std::uint64_t key) : count_(static_cast<std::uint64_t>(count)) {
  // With fewer than four bits the halves are too narrow for six rounds to reach all orders alike.
  const int bits = std::max(4, static_cast<int>(std::bit_width(count_ - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  for (std::size_t round = 0; round < keys_.size(); ++round) keys_[round] = mix_all(key, round);
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  std::uint64_t left = value >> low_bits_;
  std::uint64_t right = value & low_mask(low_bits_);
  int left_bits = high_bits_;
  int right_bits = low_bits_;
  for (const std::uint64_t key : keys_) {
    left ^= mix(right ^ key) & low_mask(left_bits);
    std::swap(left, right);
    std::swap(left_bits, right_bits);
  }
  return left << low_bits_ | right;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  if (count_ == 1) return 0;
  auto value = static_cast<std::uint64_t>(index);
  do {
    value = encrypt(value);
  } while (value >= count_);
  return static_cast<std::int64_t>(value);
}

}  // namespace lockstep::data
