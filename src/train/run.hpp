#pragma once

#include "config/settings.hpp"
#include "mpi/communicator.hpp"

namespace lockstep::train {

/// `lockstep train`: one run from its settings to its marker file COMPLETE, or on from where it stopped.
/// Returns the exit code; throws Error. Collective.
int run_training(const config::TrainSettings& settings, const mpi::Communicator& world);

/// `lockstep eval`: loss and accuracy of a run's checkpoint over a data set, at any world size. Collective.
int run_evaluation(const config::EvalSettings& settings, const mpi::Communicator& world);

}  // namespace lockstep::train
