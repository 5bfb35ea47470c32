#include "train/memory_fit.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "cuda/device.hpp"

namespace lockstep::train {

namespace {

constexpr double kUsable = 0.95;  // of the device's memory: some is lost between blocks

std::string gib(double bytes) {
  char words[32];
  std::snprintf(words, sizeof words, "%.1f GiB", bytes / (1 << 30));
  return words;
}

models::Batch first_rows(const models::Batch& batch, std::int64_t rows) {
  return {batch.inputs.narrow(0, 0, rows), batch.targets.narrow(0, 0, rows), batch.loss_gradient};
}

/// Greatest memory of Torch's allocator while `run` works on the first rows.
double peak_bytes(const models::Batch& batch, std::int64_t rows,
                  const std::function<void(const models::Batch&)>& run) {
  const auto device = batch.inputs.get_device();
  c10::cuda::CUDACachingAllocator::emptyCache();
  c10::cuda::CUDACachingAllocator::resetPeakStats(device);
  run(first_rows(batch, rows));
  return static_cast<double>(c10::cuda::CUDACachingAllocator::getDeviceStats(device).allocated_bytes[0].peak);
}

/// The largest number of rows up to `most` that cuts `rows` into equal micro-batches.
std::int64_t even_part(std::int64_t rows, std::int64_t most) {
  while (rows % most != 0) --most;
  return most;
}

}  // namespace

std::string explain_too_large(const models::Batch& batch,
                              const std::function<void(const models::Batch&)>& run) {
  const std::int64_t rows = batch.inputs.size(0);
  const double total = static_cast<double>(cuda::describe(batch.inputs.get_device()).memory_bytes);
  const std::string trouble = text("a micro-batch of ", rows, rows == 1 ? " row" : " rows",
                                   " does not fit into the ", gib(total), " of this GPU");
  const std::int64_t few = std::max<std::int64_t>(1, rows / 16);
  if (rows < 2) return trouble + "; take a smaller model, shorter rows, or --recompute";
  try {
    const double least = peak_bytes(batch, few, run);
    const double more = peak_bytes(batch, std::min(rows, 2 * few), run);
    const double of_row = std::max(1.0, (more - least) / static_cast<double>(std::min(rows, 2 * few) - few));
    const double fixed = least - of_row * static_cast<double>(few);
    const auto estimate = static_cast<std::int64_t>(std::max(0.0, (kUsable * total - fixed) / of_row));
    const std::int64_t fits = std::min(estimate, rows - 1);
    if (fits < 1) return trouble + "; take a smaller model, shorter rows, or --recompute";
    return text(trouble, ": the model takes about ", gib(fixed), " and each row ", gib(of_row), "; about ",
                fits, " rows fit: take --micro-batch ", even_part(rows, fits),
                " (the rest of a rank's share follows in further micro-batches)");
  } catch (const c10::OutOfMemoryError&) {
    return text(trouble, ", nor do ", 2 * few, " rows; take a smaller --micro-batch or a smaller model");
  }
}

}  // namespace lockstep::train
