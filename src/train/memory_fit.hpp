#pragma once

#include <functional>
#include <string>

#include "models/model.hpp"

namespace lockstep::train {

/// The error for a micro-batch of `batch` that the device's memory could not hold: measures `run` (a forward
/// and backward pass) on a few of its rows and says how many rows would fit. Local; CUDA only.
std::string explain_too_large(const models::Batch& batch,
                              const std::function<void(const models::Batch&)>& run);

}  // namespace lockstep::train
