#include "precision/autocast.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace lockstep::precision {

namespace {

bool is_low(config::Precision precision) {
  return precision == config::Precision::fp16 || precision == config::Precision::bf16;
}

}  // namespace

AutocastScope::AutocastScope(config::Precision precision, bool cuda) : active_(cuda && is_low(precision)) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(at::kCUDA);
  was_cached_ = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  at::autocast::set_autocast_dtype(at::kCUDA,
                                   precision == config::Precision::fp16 ? at::kHalf : at::kBFloat16);
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCUDA, was_enabled_);
  at::autocast::set_autocast_cache_enabled(was_cached_);
}

void set_arithmetic(config::Precision precision) {
  auto& context = at::globalContext();
  const auto float32 =
      precision == config::Precision::tf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, float32);
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV, float32);
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::RNN, float32);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

}  // namespace lockstep::precision
