#pragma once

#include <optional>
#include <string>

#include "config/settings.hpp"
#include "mpi/communicator.hpp"

namespace lockstep::train {

/// What a run folder holds before a run starts in it.
struct RunFolder {
  bool complete = false;                  ///< the run reached its end before
  std::optional<std::string> checkpoint;  ///< folder to go on from
  std::int64_t step = 0;                  ///< of that checkpoint
};

/// Finds where to go on, as --resume asks, and writes nothing. Throws UsageError(configuration) when the
/// folder or the checkpoint is of a run with other settings (each difference is named), or the folder holds
/// any run at all under
/// --resume never; DataError when checkpoints are there and none is whole. Collective.
RunFolder find_run(const config::TrainSettings& settings, const mpi::Communicator& world);

/// Makes the run's folder where it is missing, takes the mark of completion away, and writes config.json and
/// a line of attempts.jsonl. Comes last of all that can refuse a run, so that a refused one leaves no trace.
/// Collective.
void enter_run(const config::TrainSettings& settings, const RunFolder& found, const mpi::Communicator& world);

/// Marks the run as done; `step` is its last one. Rank 0.
void mark_complete(const std::string& folder, std::int64_t step);

}  // namespace lockstep::train
