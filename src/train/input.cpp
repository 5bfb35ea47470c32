#include "train/input.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cuda/memory.hpp"
#include "ops/normalise.hpp"

namespace lockstep::train {

namespace {

constexpr std::size_t kStagings = 3;

at::ScalarType torch_type(hdf5::Scalar scalar) {
  switch (scalar) {
    case hdf5::Scalar::uint8:
      return at::kByte;
    case hdf5::Scalar::int8:
      return at::kChar;
    case hdf5::Scalar::int16:
      return at::kShort;
    case hdf5::Scalar::uint16:
      return at::kUInt16;
    case hdf5::Scalar::uint32:
      return at::kUInt32;
    case hdf5::Scalar::int32:
      return at::kInt;
    case hdf5::Scalar::int64:
      return at::kLong;
    case hdf5::Scalar::float16:
      return at::kHalf;
    case hdf5::Scalar::float32:
      return at::kFloat;
    case hdf5::Scalar::float64:
      return at::kDouble;
    default:
      throw UsageError(text("models take no inputs of type ", hdf5::name(scalar)), ExitCode::bad_data);
  }
}

std::int64_t round_up(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

Normaliser::Normaliser(const data::DataSet& data, at::Device device, config::Precision precision)
    : out_type_(at::kFloat), per_channel_(data.input_shape().size() == 3) {
  if (device.is_cuda() && precision == config::Precision::fp16) out_type_ = at::kHalf;
  if (device.is_cuda() && precision == config::Precision::bf16) out_type_ = at::kBFloat16;
  const bool bytes = data.input_scalar() == hdf5::Scalar::uint8;
  if (data.tokens()) return;
  if (!bytes && data.mean().empty()) return;
  const double unit = bytes ? 1.0 / 255 : 1.0;
  const std::size_t channels = per_channel_ ? static_cast<std::size_t>(data.input_shape()[0]) : 1;
  std::vector<float> scale(channels, static_cast<float>(unit));
  std::vector<float> shift(channels, 0.0f);
  for (std::size_t channel = 0; channel < channels && channel < data.mean().size(); ++channel) {
    scale[channel] = static_cast<float>(unit / data.std_deviation()[channel]);
    shift[channel] = static_cast<float>(-data.mean()[channel] / data.std_deviation()[channel]);
  }
  scale_ = at::tensor(at::ArrayRef<float>(scale), at::kFloat).to(device);
  shift_ = at::tensor(at::ArrayRef<float>(shift), at::kFloat).to(device);
}

at::Tensor Normaliser::operator()(const at::Tensor& raw) const {
  const bool known = raw.scalar_type() == at::kByte || raw.scalar_type() == at::kFloat;
  const at::Tensor values = known ? raw : raw.to(at::kFloat);
  if (!scale_.defined()) return values.to(out_type_);
  if (per_channel_) return ops::normalise(values, scale_, shift_, out_type_);
  return ops::normalise(values.unsqueeze(1), scale_, shift_, out_type_).squeeze(1);
}

models::Batch token_batch(const at::Tensor& rows) {
  const std::int64_t length = rows.size(1) - 1;
  const auto widened = [&](std::int64_t first) {
    return rows.narrow(1, first, length).to(at::kLong, false, false, at::MemoryFormat::Contiguous);
  };
  return {widened(0), widened(1)};
}

at::Tensor raw_inputs(const data::DataSet& data, void* memory, std::int64_t rows, at::Device device) {
  std::vector<std::int64_t> shape{rows};
  for (const auto extent : data.stored_shape()) shape.push_back(static_cast<std::int64_t>(extent));
  return at::from_blob(memory, shape,
                       at::TensorOptions().dtype(torch_type(data.input_scalar())).device(device));
}

Input::Input(const data::DataSet& data, data::Loader& loader, at::Device device, config::Precision precision,
             std::int64_t accumulation)
    : data_(data),
      loader_(loader),
      device_(device),
      normalise_(data, device, precision),
      input_bytes_(round_up(loader.capacity() * data.input_row_bytes())),
      micro_(static_cast<std::size_t>(accumulation)) {
  if (!device.is_cuda()) return;
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  const std::int64_t label_bytes = data.tokens() ? 0 : static_cast<std::int64_t>(sizeof(std::int64_t));
  const auto bytes = input_bytes_ + loader.capacity() * label_bytes;
  fixed_ = at::zeros({bytes}, options);
  copy_stream_.emplace();
  for (std::size_t i = 0; i < kStagings; ++i) {
    staging_.push_back(
        std::make_shared<Staging>(Staging{at::empty({bytes}, options), cuda::Event(), cuda::Event()}));
  }
}

void Input::advance() {
  if (held_ != nullptr) loader_.release(*held_);
  held_ = nullptr;
  const data::Slot& slot = loader_.next();
  micro_ = slot.micro;
  global_count_ = slot.global_count * data_.targets_per_row();
  epoch_ = slot.epoch;
  wait_seconds_ = slot.wait_seconds;
  if (device_.is_cuda()) {
    upload(slot);
  } else {
    held_ = &slot;
  }
}

void Input::upload(const data::Slot& slot) {
  const auto staging = staging_[next_staging_];
  next_staging_ = (next_staging_ + 1) % staging_.size();
  auto* const bytes = static_cast<std::byte*>(staging->bytes.data_ptr());
  const auto compute = c10::cuda::getCurrentCUDAStream().stream();
  copy_stream_->wait(staging->consumed);
  if (slot.count > 0) {
    cuda::copy(bytes, slot.inputs, slot.count * data_.input_row_bytes(), copy_stream_->raw());
    if (slot.targets != nullptr) {
      cuda::copy(bytes + input_bytes_, slot.targets,
                 slot.count * static_cast<std::int64_t>(sizeof(std::int64_t)), copy_stream_->raw());
    }
  }
  staging->uploaded.record(copy_stream_->raw());
  loader_.release(slot, [staging] { staging->uploaded.synchronize(); });  // in the loader's thread
  cuda::wait(compute, staging->uploaded);
  cuda::copy(fixed_.data_ptr(), bytes, fixed_.numel(), compute);
  staging->consumed.record(compute);
}

models::Batch Input::slot(std::int64_t micro) const {
  const data::Share& rows = micro_[static_cast<std::size_t>(micro)];
  std::byte* inputs = nullptr;
  std::int64_t* targets = nullptr;
  if (device_.is_cuda()) {
    inputs = static_cast<std::byte*>(fixed_.data_ptr());
    targets = reinterpret_cast<std::int64_t*>(inputs + input_bytes_);
  } else {
    inputs = held_->inputs;
    targets = held_->targets;
  }
  const auto raw = raw_inputs(data_, inputs + rows.first * data_.input_row_bytes(), rows.count(), device_);
  if (data_.tokens()) return token_batch(raw);
  const auto labels = at::from_blob(targets + rows.first, {rows.count()},
                                    at::TensorOptions().dtype(at::kLong).device(device_));
  return {normalise_(raw), labels};
}

}  // namespace lockstep::train
