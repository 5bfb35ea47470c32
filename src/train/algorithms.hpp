#pragma once

#include <string>

#include "mpi/communicator.hpp"
#include "train/step.hpp"

namespace lockstep::train {

/// Makes all ranks use the same algorithms for their matrix products, and later runs too.
///
/// Algorithms are chosen by timing, and another choice rounds differently. So what is known is taken from
/// `<run>/algorithms.json`, else from the user's cache (XDG_CACHE_HOME or ~/.cache, lockstep/algorithms-*.json, one
/// file for each version of the library and kind of device); what is missing is timed in a rehearsal of `step` on
/// its present batch, which changes no weight; and rank 0's choices are what all ranks use and both files keep.
/// CUDA only. Collective.
void settle_algorithms(Step& step, const std::string& run_folder, const mpi::Communicator& world);

}  // namespace lockstep::train
