#include <cstdlib>

#include "sample.hpp"
#include "support/catch.hpp"

// Hidden from a plain run ([.]): reshape.sh starts them at several world sizes with one folder.

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string shared_folder() {
  const char* folder = std::getenv("LOCKSTEP_RESHAPE_FOLDER");
  REQUIRE(folder != nullptr);
  return folder;
}

std::string saved_at(int world_size) {
  return shared_folder() + "/np" + std::to_string(world_size);
}

}  // namespace

TEST_CASE("a checkpoint is saved at this world size", "[.][reshape_save]") {
  const auto world = mpi::Communicator::world();
  const std::string folder = checkpoint::save(saved_at(world.size()), sample(8), world, 2);
  CHECK(checkpoint::read_manifest(folder).world_size == world.size());
}

TEST_CASE("this world size loads what every other saved, bit for bit", "[.][reshape_load]") {
  const auto world = mpi::Communicator::world();
  for (const int saved : {1, 2, 3, 4}) {
    INFO("saved at " << saved << " ranks, loaded at " << world.size());
    const auto found = checkpoint::find_latest(saved_at(saved), world);
    REQUIRE(found);
    checkpoint::Snapshot loaded = sample(0, true);
    checkpoint::load(found->folder, loaded, world);
    CHECK(same_as_sample(loaded, 8));
  }
}

TEST_CASE("a layout with other places and padding takes the same tensors", "[.][reshape_load]") {
  const auto world = mpi::Communicator::world();
  checkpoint::Snapshot loaded = sample(0, true);
  loaded.flat_size = 30;
  loaded.layout = {{"out.weight", {2, 3}, 2, 6}, {"fc.bias", {3}, 8, 3}, {"fc.weight", {3, 5}, 12, 15}};
  for (auto& array : loaded.arrays) array.values = at::zeros({30});
  checkpoint::load(checkpoint::find_latest(saved_at(3), world)->folder, loaded, world);
  const checkpoint::Snapshot expected = sample(8);
  for (std::size_t i = 0; i < expected.arrays.size(); ++i) {
    const at::Tensor& from = expected.arrays[i].values;
    const at::Tensor& to = loaded.arrays[i].values;
    CHECK(same_bits(to.narrow(0, 12, 15).contiguous(), from.narrow(0, 0, 15).contiguous()));
    CHECK(same_bits(to.narrow(0, 8, 3).contiguous(), from.narrow(0, 16, 3).contiguous()));
    CHECK(same_bits(to.narrow(0, 2, 6).contiguous(), from.narrow(0, 19, 6).contiguous()));
  }
}
