#include <exception>

#include "app/dispatch.hpp"
#include "app/launch.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "mpi/environment.hpp"
#include "mpi/job.hpp"

namespace {

using namespace lockstep;

int fail(ExitCode code, const char* message) {
  log::line(text("lockstep: error: ", message));
  return static_cast<int>(code);
}

/// Every rank reads the arguments and all learn of a mistake in any, so it is printed once and none is left
/// waiting.
int run_on_ranks(const app::Arguments& line, const mpi::Communicator& world) {
  return mpi::run_or_abort(world, [&] {
    app::Job job;
    mpi::agree(world, [&] { job = app::dispatch(line); });
    if (!job.on_ranks) {
      throw UsageError(text("this command runs as one process, but ", world.size(),
                            " were started; start it without mpirun"));
    }
    return job.on_ranks(world);
  });
}

int run(int argc, char** argv) {
  const app::Arguments line(argv + 1, argv + argc);
  const app::Launch launch = app::launch_from_environment();
  if (app::asks_for_page(line) && !launch.prints) return 0;
  if (!launch.several || app::asks_for_page(line)) {
    const app::Job job = app::dispatch(line);
    if (job.alone) return job.alone();
  }
  const mpi::Environment environment(&argc, &argv);
  const auto world = mpi::Communicator::world();
  log::set_rank(world.rank(), world.size());
  return run_on_ranks(line, world);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::exception& error) {
    return fail(ExitCode::internal, error.what());
  }
}
