#pragma once

#include <string>

#include "mpi/communicator.hpp"
#include "train/step.hpp"

namespace lockstep::train {

/// Makes all ranks use the same algorithms for their matrix products, and later runs too.
///
/// Algorithms are chosen by timing, and another choice rounds differently. So a run that has
/// `<run>/algorithms.json` uses what is there. A new run rehearses `step` on its present batch, which changes
/// no weight: shapes that the user's cache knows (XDG_CACHE_HOME or ~/.cache, lockstep/algorithms-*.json, one
/// file for each version of the library and kind of device) are taken from it, others are timed, and what
/// rank 0 has then used is what all ranks use and both files keep. Shapes that come later, such as those of a
/// short last batch, take the library's own first candidate on every rank. CUDA only. Collective.
void settle_algorithms(Step& step, const std::string& run_folder, const mpi::Communicator& world);

}  // namespace lockstep::train
