#pragma once

#include <optional>
#include <string>

#include "config/settings.hpp"
#include "mpi/communicator.hpp"

namespace lockstep::train {

/// What a run folder holds before a run starts in it.
struct RunFolder {
  bool complete = false;                       ///< the run reached its end before
  std::optional<std::string> checkpoint;       ///< folder to go on from
  std::int64_t step = 0;                       ///< of that checkpoint
};

/// Makes or opens the run's folder and finds where to go on, as --resume asks. Writes config.json and a line of
/// attempts.jsonl. Throws before it writes anything: UsageError(configuration) when the folder holds a run with other
/// settings (each difference is named) or any run at all under --resume never; DataError when checkpoints are there and
/// none is whole. Collective.
RunFolder open_run_folder(const config::TrainSettings& settings, const mpi::Communicator& world);

/// Marks the run as done; `step` is its last one. Rank 0.
void mark_complete(const std::string& folder, std::int64_t step);

}  // namespace lockstep::train
