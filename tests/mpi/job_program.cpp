// A job that fails in the way its argument names; tests compare its exit code and output.
#include <iostream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "mpi/environment.hpp"
#include "mpi/job.hpp"

using namespace lockstep;

namespace {

int run(const mpi::Communicator& world, const std::string& mode) {
  const bool last = world.rank() == world.size() - 1;
  if (mode == "preempted") return static_cast<int>(ExitCode::preempted);
  if (mode == "error_everywhere") {
    mpi::agree(world, [] { throw Error(ExitCode::bad_data, "shard 3 is damaged"); });
  }
  if (mode == "error_on_root") {
    mpi::on_root(world, [] { throw Error(ExitCode::cannot_create, "cannot make the run folder"); });
  }
  if (mode == "error_on_last_rank" && last) throw Error(ExitCode::unavailable, "the device is gone");
  if (mode == "exception_on_last_rank" && last) std::vector<int>().at(1);
  if (mode == "usage_error_on_last_rank" && last) throw UsageError("no flag of this name");
  if (mode == "different_settings") {
    const auto lr = world.rank() < 2 ? "0.1" : world.rank() == 2 ? "0.2" : "0.3";
    mpi::check_settings_alike(world, text("model = mlp\nlr = ", lr, "\nseed = 1\n"));
  }
  world.barrier();  // where the other ranks wait
  world.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    mpi::Environment environment(&argc, &argv);
    const auto world = mpi::Communicator::world();
    if (mode == "unwind") {
      if (world.rank() == world.size() - 1)
        throw std::runtime_error("nobody catches this before the environment ends");
      world.barrier();
    }
    return mpi::run_or_abort(world, [&] { return run(world, mode); });
  } catch (const std::exception& error) {
    std::cerr << "unwound: " << error.what() << std::endl;
    return 1;
  }
}
