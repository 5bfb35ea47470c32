#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

/// Exit codes of every lockstep command, sysexits-like; launchers use 1 and everything from 128 themselves.
enum class ExitCode : int {
  done = 0,
  usage = 64,             ///< a flag or argument is wrong
  bad_data = 65,          ///< a data set or checkpoint is damaged
  input_missing = 66,     ///< a file or folder is not there
  unavailable = 69,       ///< a device or peer is not available
  internal = 70,          ///< a bug, a hang or permanent non-finite gradients
  operating_system = 71,  ///< the operating system refused something
  cannot_create = 73,     ///< an output folder or file cannot be created
  checkpoint_io = 74,     ///< a checkpoint cannot be written
  preempted = 75,         ///< state saved; requeue me
  replicas_differ = 76,   ///< ranks hold different weights
  permission = 77,
  configuration = 78,  ///< the settings do not fit the run, the launcher or the machine
};

/// Where an error was raised. A default argument fills it: `SourceLine where = SourceLine::here()`.
struct SourceLine {
  const char* file;
  int line;
  static constexpr SourceLine here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Base of the four error types. `what()` is one line that names the thing and both values and says what to
/// do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message, SourceLine where = SourceLine::here())
      : std::runtime_error(message), code_(code), where_(where) {}

  ExitCode code() const { return code_; }
  SourceLine where() const { return where_; }

  /// True when every rank is known to have raised this same error: rank 0 alone prints it and all leave in
  /// order.
  bool on_all_ranks() const { return on_all_ranks_; }
  void mark_on_all_ranks() { on_all_ranks_ = true; }

 private:
  ExitCode code_;
  SourceLine where_;
  bool on_all_ranks_ = false;
};

/// A flag, argument, shape or setting is wrong. Found on all ranks alike, since all ranks hold the same
/// settings.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message, ExitCode code = ExitCode::usage,
                      SourceLine where = SourceLine::here())
      : Error(code, message, where) {
    mark_on_all_ranks();
  }
};

/// A library call failed: `library` ("MPI"), `call` (its text), `status` (its code), `words` (its own
/// explanation).
class ApiError : public Error {
 public:
  ApiError(std::string_view library, std::string_view call, long status, std::string_view words,
           ExitCode code = ExitCode::internal, SourceLine where = SourceLine::here());
};

/// A data set or checkpoint is missing, damaged or not what it should be. `row` is -1 when no row is meant.
class DataError : public Error {
 public:
  DataError(std::string_view path, std::string_view dataset, long row, std::string_view problem,
            ExitCode code = ExitCode::bad_data, SourceLine where = SourceLine::here());
};

/// A collective or a device did not finish in time.
class TimeoutError : public Error {
 public:
  TimeoutError(std::string_view collective, long sequence, int rank, long bytes, double waited_seconds,
               SourceLine where = SourceLine::here());
};

}  // namespace lockstep
