#include "precision/flat_parameters.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <unordered_set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "precision/stream.hpp"

namespace lockstep::precision {

namespace {

LowType low_type_of(config::Precision precision) {
  switch (precision) {
    case config::Precision::fp16:
      return LowType::half;
    case config::Precision::bf16:
      return LowType::bfloat16;
    default:
      return LowType::none;
  }
}

at::ScalarType scalar_type_of(LowType type) {
  return type == LowType::half ? at::kHalf : at::kBFloat16;
}

std::int64_t align(std::int64_t count) {
  constexpr auto unit = FlatParameters::kAlignment;
  return (count + unit - 1) / unit * unit;
}

/// Parameters of normalisation layers, which stay in float.
std::unordered_set<const void*> normalisation_parameters(torch::nn::Module& model) {
  std::unordered_set<const void*> found;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const std::string kind = module->name();
    if (kind.find("Norm") == std::string::npos) continue;
    for (const auto& parameter : module->parameters(/*recurse=*/false))
      found.insert(parameter.unsafeGetTensorImpl());
  }
  return found;
}

at::Tensor wrap(const FlatParameters::Allocate& allocate, std::int64_t count, at::ScalarType type,
                at::Device device) {
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(type));
  auto memory = allocate(std::max<std::int64_t>(1, count) * element_bytes);
  void* const data = memory.get();
  return at::from_blob(
      data, {count}, [memory](void*) {}, at::TensorOptions().dtype(type).device(device));
}

}  // namespace

FlatParameters::FlatParameters(torch::nn::Module& model, config::Precision precision,
                               const Allocate& allocate)
    : low_type_(low_type_of(precision)) {
  torch::NoGradGuard no_grad;
  place(model);
  attach(allocate);
}

void FlatParameters::place(torch::nn::Module& model) {
  const auto keep_full = normalisation_parameters(model);
  std::unordered_set<const void*> seen;  // a tied parameter is registered twice and is one
  std::vector<Parameter> low;
  std::vector<Parameter> full;
  auto named = model.named_parameters().pairs();
  std::reverse(named.begin(), named.end());
  for (auto& [name, variable] : named) {
    if (!variable.requires_grad()) continue;
    if (variable.scalar_type() != at::kFloat) {
      throw UsageError(text("parameter ", name, " is ", toString(variable.scalar_type()),
                            "; models are made in float and stored as --precision asks"));
    }
    if (!seen.insert(variable.unsafeGetTensorImpl()).second) continue;
    Parameter parameter{name, variable.sizes().vec(), 0, variable.numel(), variable.dim() >= 2, variable};
    const bool is_low = low_type_ != LowType::none && !keep_full.count(variable.unsafeGetTensorImpl());
    (is_low ? low : full).push_back(std::move(parameter));
  }
  for (auto* part : {&low, &full}) {
    for (auto& parameter : *part) {
      parameter.begin = size_;
      size_ += align(parameter.count);
      parameters_.push_back(std::move(parameter));
    }
    if (part == &low) low_size_ = size_;
  }
  if (parameters_.empty()) throw UsageError("the model has no parameter that takes a gradient");
}

void FlatParameters::attach(const Allocate& allocate) {
  const at::Device device = parameters_.front().variable.device();
  const auto float_options = at::TensorOptions().dtype(at::kFloat).device(device);
  masters_ = at::zeros({size_}, float_options);
  full_gradients_ = wrap(allocate, size_ - low_size_, at::kFloat, device);
  at::Tensor computed_weights;
  at::Tensor computed_gradients;
  if (low_type_ != LowType::none) {
    const auto type = scalar_type_of(low_type_);
    low_weights_ = at::zeros({low_size_}, float_options.dtype(type));
    if (device.is_cpu()) {
      low_gradients_ = at::zeros({low_size_}, float_options.dtype(type));
      widened_weights_ = at::zeros({low_size_}, float_options);
      widened_gradients_ = wrap(allocate, low_size_, at::kFloat, device);
    } else {
      low_gradients_ = wrap(allocate, low_size_, type, device);
    }
    computed_weights = device.is_cpu() ? widened_weights_ : low_weights_;
    computed_gradients = device.is_cpu() ? widened_gradients_ : low_gradients_;
  }
  for (auto& parameter : parameters_) {
    const bool low = parameter.begin < low_size_;
    const auto first = low ? parameter.begin : parameter.begin - low_size_;
    masters_.narrow(0, parameter.begin, parameter.count).copy_(parameter.variable.flatten());
    const at::Tensor weights = low ? computed_weights.narrow(0, first, parameter.count)
                                   : masters_.narrow(0, parameter.begin, parameter.count);
    const at::Tensor& gradients = low ? computed_gradients : full_gradients_;
    parameter.variable.set_data(weights.view(parameter.shape));
    parameter.variable.mutable_grad() = gradients.narrow(0, first, parameter.count).view(parameter.shape);
  }
  refresh_weights();
}

GradientView FlatParameters::gradients() const {
  return {low_gradients_.defined() ? low_gradients_.data_ptr() : nullptr, low_type_, low_size_,
          full_gradients_.data_ptr<float>(), size_ - low_size_};
}

comm::Buffer FlatParameters::gradient_buffer(Range range) const {
  if (range.begin < low_size_ && widened_gradients_.defined()) {
    return {widened_gradients_.data_ptr<float>() + range.begin, range.count, comm::Scalar::float32};
  }
  if (range.begin < low_size_) {
    const auto scalar = low_type_ == LowType::half ? comm::Scalar::float16 : comm::Scalar::bfloat16;
    return {static_cast<std::uint16_t*>(low_gradients_.data_ptr()) + range.begin, range.count, scalar};
  }
  return {full_gradients_.data_ptr<float>() + (range.begin - low_size_), range.count, comm::Scalar::float32};
}

void FlatParameters::store_gradients() {
  if (!widened_gradients_.defined()) return;
  reference::round_weights(low_gradients_.data_ptr(), low_type_, widened_gradients_.data_ptr<float>(),
                           low_size_);
}

void FlatParameters::clear_gradients() {
  if (widened_gradients_.defined()) widened_gradients_.zero_();
  if (low_gradients_.defined()) low_gradients_.zero_();
  if (full_gradients_.numel() > 0) full_gradients_.zero_();
}

void FlatParameters::refresh_weights() {
  if (low_type_ == LowType::none) return;
  if (on_cuda()) {
    cuda_kernels::round_weights(low_weights_.data_ptr(), low_type_, masters_.data_ptr<float>(), low_size_,
                                current_stream());
    return;
  }
  reference::round_weights(low_weights_.data_ptr(), low_type_, masters_.data_ptr<float>(), low_size_);
  reference::widen(widened_weights_.data_ptr<float>(), low_weights_.data_ptr(), low_type_, low_size_);
}

std::string FlatParameters::first_nonfinite() const {
  for (const auto& parameter : parameters_) {
    const bool low = parameter.begin < low_size_;
    const at::Tensor& gradients = low ? low_gradients_ : full_gradients_;
    const auto first = low ? parameter.begin : parameter.begin - low_size_;
    const at::Tensor values = gradients.narrow(0, first, parameter.count);
    if (!at::isfinite(values).all().item<bool>()) return parameter.name;
  }
  return {};
}

}  // namespace lockstep::precision
