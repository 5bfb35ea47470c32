#include "precision/loss_scaler.hpp"

#include <torch/torch.h>

#include <cstddef>
#include <cstring>

#include "precision/stream.hpp"

namespace lockstep::precision {

namespace {

ScaleRule rule_of(const config::ScalerSettings& settings, config::Precision precision) {
  ScaleRule rule;
  rule.growth_factor = settings.growth_factor;
  rule.backoff_factor = settings.backoff_factor;
  rule.growth_interval = static_cast<std::int32_t>(settings.growth_interval);
  rule.min_scale = static_cast<float>(settings.min_scale);
  rule.max_scale = static_cast<float>(settings.max_scale);
  rule.hysteresis = static_cast<std::int32_t>(settings.hysteresis);
  rule.dynamic = precision == config::Precision::fp16;
  return rule;
}

}  // namespace

void ScaledLoss::backward() const {
  sum.backward(seed);
}

LossScaler::LossScaler(FlatParameters& parameters, const config::ScalerSettings& settings,
                       config::Precision precision, double clip_norm,
                       const std::vector<float>& learning_rates)
    : parameters_(parameters),
      rule_(rule_of(settings, precision)),
      clip_norm_(static_cast<float>(clip_norm)) {
  const at::Device device = parameters.masters().device();
  const auto options = at::TensorOptions().device(device);
  storage_ = at::zeros({static_cast<std::int64_t>(sizeof(StepState))}, options.dtype(at::kByte));
  state_ = static_cast<StepState*>(storage_.data_ptr());
  seed_ = at::from_blob(&state_->gradient_seed, {}, options.dtype(at::kFloat));
  learning_rates_ = at::tensor(at::ArrayRef<float>(learning_rates), at::kFloat).to(device);
  partial_sums_ = at::zeros({kPartials}, options.dtype(at::kDouble));
  partial_flags_ = at::zeros({kPartials}, options.dtype(at::kInt));
  StepState first{};
  first.loss_scale = rule_.dynamic ? static_cast<float>(settings.init_scale) : 1.0f;
  first.hysteresis_left = rule_.hysteresis;
  write(first);
}

void LossScaler::begin() {
  parameters_.clear_gradients();
  storage_.narrow(0, offsetof(StepState, loss_sum), sizeof(float)).zero_();
}

at::Tensor LossScaler::gradient_seed(std::int64_t global_count) {
  const auto count = static_cast<float>(global_count);
  if (parameters_.on_cuda()) {
    cuda_kernels::begin_backward(state_, nullptr, count, current_stream());
  } else {
    reference::begin_backward(state_, nullptr, count);
  }
  return seed_;
}

ScaledLoss LossScaler::scale(const at::Tensor& loss_sum, std::int64_t global_count) {
  const at::Tensor value = loss_sum.detach();
  TORCH_CHECK(value.scalar_type() == at::kFloat && value.dim() == 0,
              "Model::loss must return a float scalar, got ", value.scalar_type(), " ", value.sizes());
  const auto count = static_cast<float>(global_count);
  if (parameters_.on_cuda()) {
    cuda_kernels::begin_backward(state_, value.data_ptr<float>(), count, current_stream());
  } else {
    reference::begin_backward(state_, value.data_ptr<float>(), count);
  }
  return {loss_sum, seed_};
}

void LossScaler::inspect() {
  const InspectArguments arguments{parameters_.gradients(),
                                   partial_sums_.data_ptr<double>(),
                                   partial_flags_.data_ptr<std::int32_t>(),
                                   state_,
                                   clip_norm_,
                                   learning_rates_.data_ptr<float>(),
                                   learning_rates_.numel()};
  if (parameters_.on_cuda()) {
    cuda_kernels::inspect(arguments, current_stream());
  } else {
    reference::inspect(arguments);
  }
}

void LossScaler::update() {
  if (parameters_.on_cuda()) {
    cuda_kernels::end_step(state_, rule_, current_stream());
  } else {
    reference::end_step(state_, rule_);
  }
}

comm::Buffer LossScaler::loss_buffer() const {
  return {&state_->loss_sum, 1, comm::Scalar::float32};
}

StepState LossScaler::read() const {
  StepState state;
  const at::Tensor host = storage_.cpu();
  std::memcpy(&state, host.data_ptr(), sizeof state);
  return state;
}

void LossScaler::write(const StepState& state) {
  const at::Tensor host = at::empty({static_cast<std::int64_t>(sizeof state)}, at::kByte);
  std::memcpy(host.data_ptr(), &state, sizeof state);
  storage_.copy_(host);
}

}  // namespace lockstep::precision
