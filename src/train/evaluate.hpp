#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "config/settings.hpp"
#include "data/reader.hpp"
#include "models/model.hpp"
#include "mpi/communicator.hpp"

namespace lockstep::train {

struct Evaluation {
  double loss;                     ///< mean over all rows; of token rows over all tokens
  std::optional<double> accuracy;  ///< fraction of rows predicted right, where the model tells
  std::int64_t rows;
  std::optional<double> perplexity = {};  ///< exp(loss), of token rows
};

/// Rows of one forward pass: `asked`, or where that is 0 as many as fit a small device's memory.
std::int64_t evaluation_batch(std::int64_t asked, const data::DataSet& data);

/// Loss and accuracy over every row exactly once. Rows are cut into batches of `batch` in file order,
/// whatever the world size; a rank takes whole batches, and their sums are added in file order in double. So
/// the result has the same bits at every world size, and ranks without a batch join all the same. Collective;
/// leaves the model in its former mode.
Evaluation evaluate(models::Model& model, data::Rows& rows, std::int64_t batch, config::Precision precision,
                    at::Device device, const mpi::Communicator& world);

}  // namespace lockstep::train
