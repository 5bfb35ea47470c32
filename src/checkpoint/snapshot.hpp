#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::checkpoint {

/// Place of one parameter in the flat space: elements [begin, begin + count).
struct TensorPlace {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

struct NamedTensor {
  std::string name;
  at::Tensor values;
};

/// "masters", "moment0", "moment1": float32 [flat_size], on the host or a device, the same on every rank.
using FlatArray = NamedTensor;

/// All that a run needs to go on at `step` as if it had never stopped. `arrays` and `buffers` share storage
/// with the run: `save` reads them, `load` writes into them.
struct Snapshot {
  std::int64_t step = 0;
  nlohmann::json state;   ///< scaler, order position, applied steps: the same on every rank
  nlohmann::json config;  ///< the run's settings as config.json holds them
  std::int64_t flat_size = 0;
  std::vector<TensorPlace> layout;  ///< elements between tensors are padding and not restored
  std::vector<FlatArray> arrays;
  std::vector<NamedTensor>
      buffers;  ///< this rank's model buffers, any shape, float32, float16, bfloat16, float64 or int64
};

/// Rank `rank`'s part [begin, end) of the flat space; empty for some ranks when there are fewer elements than
/// ranks.
struct FlatRange {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t count() const { return end - begin; }
};
FlatRange range_of(std::int64_t flat_size, int rank, int world_size);

}  // namespace lockstep::checkpoint
