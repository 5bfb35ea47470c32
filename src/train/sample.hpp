#pragma once

#include <cstdint>
#include <span>

namespace lockstep::train {

/// How the next token is chosen.
struct SampleSettings {
  double temperature = 1;  ///< logits are divided by it; 0: the likeliest token, the lowest id of equals
  std::int64_t top_k = 0;  ///< among so many of the likeliest, lower ids first of equals; 0: among all
  std::uint64_t seed = 1;
};

/// Draws tokens from logits, on the host. The n-th choice follows from the seed, n and the logits alone.
class Sampler {
 public:
  explicit Sampler(const SampleSettings& settings) : settings_(settings) {}

  /// The id of a token in [0, logits.size()). Throws Error(internal) where a logit is not finite.
  std::int64_t operator()(std::span<const float> logits);

 private:
  SampleSettings settings_;
  std::uint64_t drawn_ = 0;
};

}  // namespace lockstep::train
