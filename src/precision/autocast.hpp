#pragma once

#include "config/settings.hpp"

namespace lockstep::precision {

/// While it lives, a plain LibTorch model on CUDA runs under autocast's op policy in fp16 and bf16: matrix
/// products and convolutions in the low type, softmax, norms and losses in float. The cast cache is off,
/// since low weights are stored and float ones may change under a captured graph. On CPU ranks, and in fp32
/// and tf32, it changes nothing.
class AutocastScope {
 public:
  AutocastScope(config::Precision precision, bool cuda);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
  bool was_enabled_ = false;
  bool was_cached_ = false;
};

/// Process-wide arithmetic: TF32 in matrix products and convolutions only when asked for, no
/// reduced-precision split-K sums in half, deterministic cuDNN algorithms chosen by rule and not by timing.
void set_arithmetic(config::Precision precision);

}  // namespace lockstep::precision
