#pragma once

#include <memory>
#include <string>

#include "config/settings.hpp"
#include "train/input.hpp"
#include "train/step.hpp"

namespace lockstep::train {

/// Runs steps, as one CUDA graph where it can: the first steps run op by op, so that libraries set themselves
/// up; then a step is captured once, NCCL included, and replayed for every step of the same shape. A step of
/// another shape (the short last one of an epoch) runs op by op. All ranks take the same decisions, since
/// shapes follow from the order of samples. Must be destroyed before the communicator that its graph holds
/// operations of.
class StepGraph {
 public:
  /// `full_count`: rows of a full global batch; only steps of so many rows are captured.
  StepGraph(Step& step, const Input& input, config::GraphMode mode, bool cuda, std::int64_t full_count);
  ~StepGraph();

  /// Collective.
  void run();

  /// "on", or "off (CPU ranks)": for the run's first lines.
  std::string describe() const;

 private:
  struct Captured;
  void capture();

  Step& step_;
  const Input& input_;
  config::GraphMode mode_;
  bool cuda_;
  std::int64_t full_count_;
  int warm_steps_ = 0;
  std::unique_ptr<Captured> captured_;
};

}  // namespace lockstep::train
