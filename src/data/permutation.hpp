#pragma once

#include <array>
#include <cstdint>

namespace lockstep::data {

/// A keyed permutation of [0, count) in constant memory: a Feistel network over the smallest sufficient
/// number of bits, its halves uneven where that number is odd, walked along its cycle until the result lies
/// below `count` (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Good for shuffling, no
/// cipher.
class Permutation {
 public:
  Permutation(std::int64_t count, std::uint64_t key);

  std::int64_t count() const { return static_cast<std::int64_t>(count_); }
  std::int64_t operator()(std::int64_t index) const;

 private:
  static constexpr int kRounds = 6;  // even, so that uneven halves are back in their places at the end
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t count_;
  int low_bits_ = 0;
  int high_bits_ = 0;
  std::array<std::uint64_t, kRounds> keys_{};
};

}  // namespace lockstep::data
