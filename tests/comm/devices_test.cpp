#include "comm/devices.hpp"

#include "base/error.hpp"
#include "support/catch.hpp"
#include "support/gpu.hpp"

using namespace lockstep;
using namespace lockstep::comm;

namespace {

RankView view(const std::string& host, int local_rank, int local_size, int visible) {
  return {{local_rank, local_size, host}, visible};
}

Placement place(const std::string& host, int index, const std::string& uuid) {
  Placement placement;
  placement.host = host;
  placement.device.index = index;
  placement.device.uuid = uuid;
  placement.device.name = "NVIDIA H200";
  placement.device.pci_bus = "0000:41:00.0";
  return placement;
}

ExitCode code_of(const std::vector<RankView>& ranks) {
  try {
    choose_devices(ranks);
  } catch (const UsageError& error) {
    return error.code();
  }
  return ExitCode::done;
}

}  // namespace

TEST_CASE("a rank uses the device of its local rank among the visible ones, on every host") {
  CHECK(choose_devices({view("a", 0, 2, 8), view("a", 1, 2, 8), view("b", 0, 2, 2), view("b", 1, 2, 2)}) ==
        std::vector<int>{0, 1, 0, 1});
}

TEST_CASE("a rank that sees exactly one device uses it, whatever its local rank (nccl 1948)") {
  CHECK(choose_devices({view("a", 0, 4, 1), view("a", 1, 4, 1), view("a", 2, 4, 1), view("a", 3, 4, 1)}) ==
        std::vector<int>{0, 0, 0, 0});
}

TEST_CASE("more ranks on a node than GPUs is an error with both numbers and what to do") {
  const std::vector<RankView> ranks = {view("a", 0, 3, 2), view("a", 1, 3, 2), view("a", 2, 3, 2)};
  CHECK(code_of(ranks) == ExitCode::configuration);
  CHECK_THROWS_WITH(choose_devices(ranks), test::contains("host a has 3 ranks but only 2 visible GPUs") &&
                                               test::contains("at most 2 ranks") &&
                                               test::contains("--device cpu"));
}

TEST_CASE("a rank without any GPU is an error that names it") {
  const std::vector<RankView> ranks = {view("a", 0, 1, 1), view("b", 0, 1, 0)};
  CHECK(code_of(ranks) == ExitCode::unavailable);
  CHECK_THROWS_WITH(choose_devices(ranks),
                    test::contains("rank 1 on host b sees no GPU") && test::contains("--device cpu"));
}

TEST_CASE("two ranks on one GPU are found before NCCL starts, with both ranks and the GPU (horovod 3929)") {
  CHECK_NOTHROW(check_distinct({place("a", 0, "GPU-1"), place("a", 1, "GPU-2")}));
  CHECK_NOTHROW(
      check_distinct({place("a", 0, "GPU-1"), place("b", 0, "GPU-1")}));  // containers may hide the true UUID
  CHECK_THROWS_WITH(
      check_distinct({place("a", 0, "GPU-1"), place("a", 0, "GPU-2"), place("a", 0, "GPU-1")}),
      test::contains("ranks 0 and 2 on host a") && test::contains("GPU-1") && test::contains("0000:41:00.0"));
}

TEST_CASE("the table has one line a rank, with host and device identity") {
  DeviceChoice choice;
  choice.placements = {place("a", 0, "GPU-1"), place("b", 3, "GPU-2")};
  CHECK(choice.table() ==
        "rank 0: host a, GPU 0, NVIDIA H200, 0000:41:00.0\nrank 1: host b, GPU 3, NVIDIA H200, 0000:41:00.0");
}

TEST_CASE("ranks agree on devices, or leave with one error on all of them", "[ranks][gpu]") {
  const auto world = mpi::Communicator::world();
  const int devices = cuda::device_count();
  const bool enough = devices >= world.size();
  try {
    const auto choice = assign_devices(world);
    CHECK(enough);
    CHECK(choice.device == world.rank());
    CHECK(static_cast<int>(choice.placements.size()) == world.size());
  } catch (const UsageError& error) {
    CHECK_FALSE(enough);
    CHECK(error.on_all_ranks());
    CHECK(error.code() == (devices == 0 ? ExitCode::unavailable : ExitCode::configuration));
    const std::string own = error.what();
    CHECK(world.broadcast_text(own) == own);
  }
}
