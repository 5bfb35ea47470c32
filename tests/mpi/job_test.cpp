#include "mpi/job.hpp"

#include <map>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::mpi;

namespace {

/// The error that `body` raises.
Error raised_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  FAIL("nothing was raised");
  throw;
}

std::string problem(const std::map<std::string, std::string>& variables, int world_size) {
  return launch_problem(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      world_size);
}

}  // namespace

TEST_CASE("what root's body raises is raised on every rank, and nothing is when it returns", "[ranks]") {
  const auto world = Communicator::world();
  int runs = 0;
  on_root(world, [&] { ++runs; });
  CHECK(runs == (world.rank() == 0 ? 1 : 0));
  const auto error =
      raised_by([&] { on_root(world, [] { throw Error(ExitCode::cannot_create, "no folder"); }); });
  CHECK(error.code() == ExitCode::cannot_create);
  CHECK(std::string(error.what()) == "no folder");
  CHECK(error.on_all_ranks());
  const auto standard = raised_by([&] { on_root(world, [] { throw std::runtime_error("plain"); }); });
  CHECK(standard.code() == ExitCode::internal);
  world.barrier();  // the communicator is still in step
}

TEST_CASE("agree raises the lowest failing rank's error on all ranks and names the rank", "[ranks]") {
  const auto world = Communicator::world();
  agree(world, [] {});
  for (int first = 0; first < world.size(); ++first) {
    const auto error = raised_by([&] {
      agree(world, [&] {
        if (world.rank() >= first)
          throw Error(ExitCode::checkpoint_io, text("disk ", world.rank(), " is full"));
      });
    });
    CHECK(error.code() == ExitCode::checkpoint_io);
    CHECK(error.on_all_ranks());
    CHECK_THAT(std::string(error.what()), test::contains(text("disk ", first, " is full")));
    const bool alike = world.size() == 1;
    CHECK((std::string(error.what()).rfind(text("rank ", first, " on host "), 0) == 0) == !alike);
  }
}

TEST_CASE("agree does not name a rank when all fail alike", "[ranks]") {
  const auto world = Communicator::world();
  const auto error =
      raised_by([&] { agree(world, [] { throw Error(ExitCode::input_missing, "no data"); }); });
  CHECK(std::string(error.what()) == "no data");
  CHECK(error.code() == ExitCode::input_missing);
}

TEST_CASE("run_or_abort returns the body's code, and an error's code when all ranks raise it", "[ranks]") {
  const auto world = Communicator::world();
  CHECK(run_or_abort(world, [] { return 0; }) == 0);
  CHECK(run_or_abort(world, []() -> int {
          throw UsageError("a test of errors: not a fault", ExitCode::configuration);
        }) == 78);
}

TEST_CASE("a launcher that started more tasks than MPI sees is found (ompi 13523)") {
  CHECK_THAT(problem({{"SLURM_STEP_NUM_TASKS", "4"}}, 1),
             test::contains("srun started 4 tasks") && test::contains("MPI sees 1 rank:") &&
                 test::contains("srun --mpi=pmix") && test::contains("mpirun -np 4"));
  CHECK_THAT(problem({{"PMI_SIZE", "2"}}, 1), test::contains("started 2 tasks"));
}

TEST_CASE("a launch that is right is left alone") {
  CHECK(problem({}, 1).empty());
  CHECK(problem({{"SLURM_STEP_NUM_TASKS", "4"}}, 4).empty());
  CHECK(problem({{"SLURM_STEP_NUM_TASKS", "1"}}, 1).empty());
  // a batch script with four tasks that starts one process, for instance to pack a data set
  CHECK(
      problem({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}, {"SLURM_PROCID", "0"}}, 1)
          .empty());
  // mpirun inside sbatch: its daemons are an srun step of one task a node
  CHECK(problem({{"SLURM_STEP_NUM_TASKS", "8"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, 2).empty());
  CHECK(problem({{"SLURM_STEP_NUM_TASKS", "many"}, {"PMI_SIZE", ""}}, 1).empty());
}

TEST_CASE("settings that differ on one rank stop all ranks, naming the line and both values", "[ranks]") {
  const auto world = Communicator::world();
  check_settings_alike(world, "lr = 0.1\nseed = 1\n");
  if (world.size() == 1) return;  // nothing to differ from
  const int odd = world.size() - 1;
  const auto differing = raised_by([&] {
    check_settings_alike(world, world.rank() == odd ? "lr = 0.1\nseed = 2\n" : "lr = 0.1\nseed = 1\n");
  });
  CHECK(differing.code() == ExitCode::configuration);
  CHECK(differing.on_all_ranks());
  CHECK_THAT(std::string(differing.what()),
             test::contains(text("rank 0 has \"seed = 1\", rank ", odd, " has \"seed = 2\"")));
  const auto shorter =
      raised_by([&] { check_settings_alike(world, world.rank() == odd ? "lr = 0.1" : "lr = 0.1\nx = 1"); });
  CHECK_THAT(std::string(shorter.what()), test::contains("has no such line"));
}
