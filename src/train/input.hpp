#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/settings.hpp"
#include "cuda/stream.hpp"
#include "data/loader.hpp"
#include "models/model.hpp"

namespace lockstep::train {

/// Turns raw rows of a data set into what models take: normalised, float (half or bfloat16 on CUDA in fp16
/// and bf16).
class Normaliser {
 public:
  Normaliser(const data::DataSet& data, at::Device device, config::Precision precision);
  /// `raw` [rows, ...input_shape] of the data set's type; not tokens.
  at::Tensor operator()(const at::Tensor& raw) const;

 private:
  at::ScalarType out_type_;
  bool per_channel_;
  at::Tensor scale_, shift_;  // float [channels]; undefined: the data set has nothing to normalise by
};

/// Inputs and targets of token rows [rows, T + 1] as they are stored: the first T tokens of each row and the
/// last T, int64 on the device of `rows`.
models::Batch token_batch(const at::Tensor& rows);

/// Rows [rows, ...stored_shape] as a tensor over `memory`, without a copy.
at::Tensor raw_inputs(const data::DataSet& data, void* memory, std::int64_t rows, at::Device device);

/// The step's samples in memory at fixed addresses, so that a captured step can be replayed.
///
/// On CUDA a copy stream brings the next step's rows to the device while the present step computes; at the
/// start of a step they move to the fixed place with one copy inside the device. On CPU ranks the loader's
/// slot itself is used.
class Input {
 public:
  Input(const data::DataSet& data, data::Loader& loader, at::Device device, config::Precision precision,
        std::int64_t accumulation);

  /// Takes the next step's rows from the loader; blocks until it has them, never for the device.
  void advance();

  models::Batch slot(std::int64_t micro) const;
  /// Of the whole step, over all ranks: how many losses are summed. Rows; of token data tokens.
  std::int64_t global_count() const { return global_count_; }
  std::int64_t epoch() const { return epoch_; }
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct Staging {
    at::Tensor bytes;
    cuda::Event uploaded;
    cuda::Event consumed;
  };
  void upload(const data::Slot& slot);

  const data::DataSet& data_;
  data::Loader& loader_;
  at::Device device_;
  Normaliser normalise_;
  std::int64_t input_bytes_;  // of all rows a slot has room for, rounded to 256
  std::optional<cuda::Stream> copy_stream_;
  std::vector<std::shared_ptr<Staging>> staging_;
  std::size_t next_staging_ = 0;
  at::Tensor fixed_;                  // bytes on the device: inputs, then targets
  const data::Slot* held_ = nullptr;  // CPU ranks: the slot in use
  std::vector<data::Share> micro_;
  std::int64_t global_count_ = 0;
  std::int64_t epoch_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace lockstep::train
