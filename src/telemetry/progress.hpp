#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "base/clock.hpp"
#include "config/settings.hpp"
#include "telemetry/metrics.hpp"

namespace lockstep::telemetry {

/// What decides whether standard output is a person's terminal.
struct Surroundings {
  bool output_is_terminal =
      false;  ///< isatty; Open MPI gives ranks a terminal of its own, so this alone does not tell
  bool started_by_mpirun = false;  ///< OMPI_COMM_WORLD_SIZE is set
  std::string launcher_says =
      {};             ///< LOCKSTEP_TERMINAL: "1", "0", or empty; launch/run sets it from its own output
  bool dumb = false;  ///< TERM=dumb
  int columns = 80;   ///< width, from the terminal or COLUMNS
};
Surroundings surroundings();

/// The mode that `automatic` stands for here: terminal or plain. Other modes stay.
config::ProgressMode resolve(config::ProgressMode mode, const Surroundings& here);

/// "step 120/500  epoch 1.9  loss 0.1834  lr 9.1e-04  scale 65536  3,210 samples/s  12 s left". Where it
/// would be longer than `columns`, the less important parts are left out. `total_steps` 0: not known.
/// `seconds_left` below 0: not known.
std::string progress_line(const StepReport& report, std::int64_t total_steps, double seconds_left,
                          int columns);

/// "step 500  eval loss 0.0712  eval accuracy 97.90 % of 1,000 samples".
std::string progress_line(const EvalReport& report);

/// Progress of a run on standard output: one line that is drawn again on a terminal, a line per report
/// otherwise. Prints on rank 0 only.
class Progress {
 public:
  Progress(config::ProgressMode mode, int rank, std::int64_t total_steps);
  Progress(config::ProgressMode mode, int rank, std::int64_t total_steps, std::ostream& out,
           const Surroundings& here);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void report(const StepReport& report);
  void report(const EvalReport& report);

  /// A line that stays, above the progress line: "checkpoint saved: ...".
  void note(const std::string& line);

  /// Leaves the last progress line in place; nothing is drawn over it any more.
  void finish();

 private:
  void draw();

  config::ProgressMode mode_;
  std::int64_t total_steps_;
  std::ostream* out_;
  int columns_;
  double step_seconds_ = 0;  // smoothed over reports, so that the time left does not jump
  std::string drawn_;        // the line that the terminal shows now
  std::string waiting_;      // a newer one, held back since the last was drawn a moment ago
  Stopwatch since_drawn_;
};

}  // namespace lockstep::telemetry
