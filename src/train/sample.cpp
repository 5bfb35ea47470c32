#include "train/sample.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"

namespace lockstep::train {

namespace {

constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53: as many bits as a double has

void check_finite(std::span<const float> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) continue;
    throw Error(ExitCode::internal, text("the logit of token ", id, " is ", logits[id],
                                         "; the model's weights or activations overflowed"));
  }
}

}  // namespace

std::int64_t Sampler::operator()(std::span<const float> logits) {
  check_finite(logits);
  const auto likelier = [&](std::int64_t a, std::int64_t b) {
    const float left = logits[static_cast<std::size_t>(a)];
    const float right = logits[static_cast<std::size_t>(b)];
    return left > right || (left == right && a < b);
  };
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  const double draw = static_cast<double>(mix_all(settings_.seed, drawn_++) >> 11) * kUnit;  // [0, 1)
  if (settings_.temperature == 0) return *std::min_element(ids.begin(), ids.end(), likelier);

  if (settings_.top_k > 0 && settings_.top_k < static_cast<std::int64_t>(ids.size())) {
    std::partial_sort(ids.begin(), ids.begin() + settings_.top_k, ids.end(), likelier);
    ids.resize(static_cast<std::size_t>(settings_.top_k));
  }
  const double highest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> up_to(ids.size());  // sums of probabilities, not yet divided by the last one
  double sum = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sum += std::exp((logits[static_cast<std::size_t>(ids[i])] - highest) / settings_.temperature);
    up_to[i] = sum;
  }
  const auto chosen = std::upper_bound(up_to.begin(), up_to.end() - 1, draw * sum);
  return ids[static_cast<std::size_t>(chosen - up_to.begin())];
}

}  // namespace lockstep::train
