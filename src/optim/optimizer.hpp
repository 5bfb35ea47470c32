#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "precision/flat_parameters.hpp"

namespace lockstep::optim {

/// Updates all masters in one pass over the flat arrays. Local; identical on every rank given the same state.
class Optimizer {
 public:
  explicit Optimizer(precision::FlatParameters& parameters, double weight_decay, int moment_count);
  virtual ~Optimizer() = default;

  /// Applies one step, unless `state->found_nonfinite`, which only the device looks at. On the current
  /// stream.
  virtual void step(const precision::StepState* state) = 0;

  /// Float [flat size] each: first and second moment of AdamW, the velocity of SGD.
  const std::vector<at::Tensor>& moments() const { return moments_; }

 protected:
  precision::FlatParameters& parameters_;
  std::vector<at::Tensor> moments_;
  at::Tensor chunks_;  // bytes of Chunk [chunk_count_], on the device
  std::int64_t chunk_count_ = 0;
};

std::unique_ptr<Optimizer> make_optimizer(precision::FlatParameters& parameters,
                                          const config::OptimizerSettings& settings);

}  // namespace lockstep::optim
