#include "optim/optimizer.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "optim/kernels.hpp"
#include "precision/stream.hpp"

namespace lockstep::optim {

namespace {

std::vector<Chunk> chunks_of(const precision::FlatParameters& parameters, double weight_decay) {
  std::vector<Chunk> chunks;
  for (const auto& parameter : parameters.parameters()) {
    const float decay = parameter.decay ? static_cast<float>(weight_decay) : 0.0f;
    for (std::int64_t done = 0; done < parameter.count; done += kChunk) {
      const auto count = std::min<std::int64_t>(kChunk, parameter.count - done);
      chunks.push_back({parameter.begin + done, static_cast<std::int32_t>(count), decay});
    }
  }
  return chunks;
}

template <class Rule>
class FlatOptimizer final : public Optimizer {
 public:
  FlatOptimizer(precision::FlatParameters& parameters, double weight_decay, int moment_count,
                const Rule& rule)
      : Optimizer(parameters, weight_decay, moment_count), rule_(rule) {}

  void step(const precision::StepState* state) override {
    FlatArrays arrays{};
    arrays.chunks = static_cast<const Chunk*>(chunks_.data_ptr());
    arrays.chunk_count = chunk_count_;
    arrays.gradients = parameters_.gradients();
    arrays.masters = parameters_.masters().data_ptr<float>();
    for (std::size_t i = 0; i < moments_.size(); ++i) arrays.moments[i] = moments_[i].data_ptr<float>();
    if (parameters_.low_weights().defined()) arrays.low_weights = parameters_.low_weights().data_ptr();
    if (parameters_.widened_weights().defined()) {
      arrays.widened_weights = parameters_.widened_weights().data_ptr<float>();
    }
    arrays.state = state;
    if (parameters_.on_cuda()) {
      cuda_kernels::step(arrays, rule_, precision::current_stream());
    } else {
      reference::step(arrays, rule_);
    }
  }

 private:
  Rule rule_;
};

}  // namespace

Optimizer::Optimizer(precision::FlatParameters& parameters, double weight_decay, int moment_count)
    : parameters_(parameters) {
  for (int i = 0; i < moment_count; ++i) moments_.push_back(at::zeros_like(parameters.masters()));
  const auto chunks = chunks_of(parameters, weight_decay);
  chunk_count_ = static_cast<std::int64_t>(chunks.size());
  const auto bytes = static_cast<std::int64_t>(chunks.size() * sizeof(Chunk));
  const at::Tensor host = at::empty({bytes}, at::kByte);
  std::memcpy(host.data_ptr(), chunks.data(), static_cast<std::size_t>(bytes));
  chunks_ = host.to(parameters.masters().device());
}

std::unique_ptr<Optimizer> make_optimizer(precision::FlatParameters& parameters,
                                          const config::OptimizerSettings& settings) {
  if (settings.kind == config::OptimizerKind::sgd) {
    const Momentum rule{static_cast<float>(settings.momentum)};
    return std::make_unique<FlatOptimizer<Momentum>>(parameters, settings.weight_decay, 1, rule);
  }
  const AdamW rule{settings.beta1, settings.beta2, static_cast<float>(settings.epsilon)};
  return std::make_unique<FlatOptimizer<AdamW>>(parameters, settings.weight_decay, 2, rule);
}

}  // namespace lockstep::optim
