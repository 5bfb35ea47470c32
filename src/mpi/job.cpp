#include "mpi/job.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>

#include <unistd.h>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

namespace lockstep::mpi {

namespace {

constexpr double kLeaveTogetherSeconds = 5;

struct Failure {
  ExitCode code;
  std::string message;
};

/// What the exception says, in one line: some libraries put a page of stack frames below.
Failure failure_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr) {
    return {ExitCode::operating_system, text("memory ran out (", error.what(),
                                             "); ask for less of it, or start fewer ranks on this machine")};
  }
  const std::string words = error.what();
  return {ExitCode::internal, words.substr(0, words.find('\n'))};
}

/// What `body` threw, if it is an exception of the standard library or ours. Others pass: they are not for
/// ranks to share.
std::optional<Failure> catch_failure(const std::function<void()>& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return Failure{error.code(), error.what()};
  } catch (const std::exception& error) {
    return failure_of(error);
  }
}

/// Collective: raises the failure of rank `root` on all ranks.
[[noreturn]] void raise_everywhere(const Communicator& world, const std::optional<Failure>& own, int root) {
  const auto code = world.broadcast_value(own ? own->code : ExitCode::internal, root);
  Error error(code, world.broadcast_text(own ? own->message : std::string(), root));
  error.mark_on_all_ranks();
  throw error;
}

[[noreturn]] void abort_job(const Communicator& world, ExitCode code, const std::string& message) {
  log::line(text("lockstep: error: rank ", world.rank(), " of ", world.size(), " on host ", host_name(), ": ",
                 message));
  std::fflush(nullptr);
  MPI_Abort(world.raw(), static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

/// Leaves once all ranks are here: a rank that exits with an error code earlier gets the others killed by the
/// launcher.
int leave_together(const Communicator& leaving, const Error& error) {
  if (leaving.rank() == 0) log::line(text("lockstep: error: ", error.what()));
  std::fflush(nullptr);
  if (!leaving.barrier_within(kLeaveTogetherSeconds)) {
    abort_job(leaving, error.code(),
              text(error.what(), " (the other ranks did not leave within ", kLeaveTogetherSeconds, " s)"));
  }
  return static_cast<int>(error.code());
}

std::string rank_and_host(int rank, const std::string& host) {
  return text("rank ", rank, " on host ", host);
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

Node locate(const Communicator& world) {
  const Communicator node = world.split_by_node();
  return {node.rank(), node.size(), host_name()};
}

void on_root(const Communicator& world, const std::function<void()>& body) {
  const auto failure = world.rank() == 0 ? catch_failure(body) : std::nullopt;
  if (world.broadcast_value(failure.has_value())) raise_everywhere(world, failure, 0);
}

void agree(const Communicator& world, const std::function<void()>& body) {
  auto failure = catch_failure(body);
  const int first_failed =
      static_cast<int>(world.min(static_cast<std::int64_t>(failure ? world.rank() : world.size())));
  if (first_failed == world.size()) return;
  // Ranks that failed alike have one key, and no key is zero.
  const std::int64_t key =
      failure ? static_cast<std::int64_t>(
                    hash_text(failure->message, static_cast<std::uint64_t>(failure->code)) | 1)
              : 0;
  const bool alike = world.min(key) == world.max(key);
  if (failure && !alike) {
    failure->message = text(rank_and_host(world.rank(), host_name()), ": ", failure->message);
  }
  raise_everywhere(world, failure, first_failed);
}

int run_or_abort(const Communicator& world, const std::function<int()>& body) {
  // A barrier on `world` could pair with one that a rank without the error waits in.
  const Communicator leaving = world.duplicate();
  try {
    return body();
  } catch (const Error& error) {
    if (error.on_all_ranks()) return leave_together(leaving, error);
    abort_job(world, error.code(), error.what());
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    abort_job(world, failure.code, failure.message);
  } catch (...) {
    abort_job(world, ExitCode::internal, "an exception of unknown type");
  }
}

}  // namespace lockstep::mpi
