#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/settings.hpp"
#include "precision/kernels.hpp"

namespace torch::nn {
class Module;
}

namespace lockstep::precision {

/// One parameter as a range of the flat space.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t begin;  ///< first element in the flat space
  std::int64_t count;
  bool decay;           ///< takes weight decay: two or more dimensions
  at::Tensor variable;  ///< the model's own tensor: its data and its gradient are views of the flat arrays
};

/// A range of the flat space that lies in one of its two parts.
struct Range {
  std::int64_t begin;
  std::int64_t count;
};

/// All parameters of a model as parallel flat arrays over one index space [0, size()).
///
/// [0, low_size()) holds the parameters that are kept in half (fp16) or bfloat16 (bf16); [low_size(), size())
/// those kept in float: all of them in fp32 and tf32, otherwise the parameters of normalisation layers. Each
/// part is in the reverse order of registration, so gradients fill it from its start during the backward
/// pass. Every parameter starts on a multiple of kAlignment elements; the gaps are zero for ever.
///
/// On CUDA the model computes with the low weights and writes low gradients. On CPU ranks half is a storage
/// format: the model computes with a float copy of the rounded weights, its float gradients are summed over
/// micro-batches and ranks, and store_gradients() rounds their sum.
class FlatParameters {
 public:
  static constexpr std::int64_t kAlignment = 64;
  using Allocate = std::function<std::shared_ptr<void>(std::int64_t bytes)>;

  /// Takes over the parameters of `model` (float, on one device). `allocate` gives zeroed memory for
  /// gradients.
  FlatParameters(torch::nn::Module& model, config::Precision precision, const Allocate& allocate);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::int64_t size() const { return size_; }
  std::int64_t low_size() const { return low_size_; }
  LowType low_type() const { return low_type_; }
  bool on_cuda() const { return masters_.is_cuda(); }

  const at::Tensor& masters() const { return masters_; }  ///< float [size()]
  const at::Tensor& low_weights() const {
    return low_weights_;
  }  ///< half or bfloat16 [low_size()]; undefined if none
  /// CPU ranks in fp16 and bf16: the float copy that the model computes with, [low_size()]; otherwise
  /// undefined.
  const at::Tensor& widened_weights() const { return widened_weights_; }

  /// The gradients in their storage type, which the scaler and the optimizer read. CPU ranks: those of the
  /// last store_gradients().
  GradientView gradients() const;
  /// The gradients that the backward pass adds to and the communicator sums, of any range inside one part. In
  /// the low part they are half or bfloat16 on CUDA, float on CPU ranks.
  comm::Buffer gradient_buffer(Range range) const;
  /// After the sum over ranks. CPU ranks: rounds the low part to its storage type. CUDA: nothing to do.
  void store_gradients();
  /// Zeroes all gradients, on the current stream.
  void clear_gradients();

  /// Weights = masters rounded to nearest even, after masters were loaded or broadcast.
  void refresh_weights();

  /// The first parameter whose reduced gradient holds an inf or NaN; empty when there is none. Waits for the
  /// device.
  std::string first_nonfinite() const;

 private:
  void place(torch::nn::Module& model);
  void attach(const Allocate& allocate);

  std::vector<Parameter> parameters_;
  LowType low_type_ = LowType::none;
  std::int64_t low_size_ = 0;
  std::int64_t size_ = 0;
  at::Tensor masters_;
  at::Tensor low_weights_;
  at::Tensor low_gradients_;
  at::Tensor full_gradients_;
  at::Tensor widened_weights_;
  at::Tensor widened_gradients_;
};

}  // namespace lockstep::precision
