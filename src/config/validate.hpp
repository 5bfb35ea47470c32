#pragma once

#include "config/settings.hpp"

namespace lockstep::config {

/// Checks what no single flag can know: required settings, the length of the run, batches against ranks, the
/// scaler's and the schedule's numbers against each other, modes against the device. Ranges of single
/// settings are checked again, for settings not made by the parser. Local; the same on every rank. Throws
/// UsageError that names the flags and their values.
void validate(const TrainSettings& settings, int world_size);

/// Required settings and ranges.
void validate(const EvalSettings& settings);

/// The same, and one prompt at most.
void validate(const GenerateSettings& settings);

}  // namespace lockstep::config
