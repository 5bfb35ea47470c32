// NCCL with one GPU a rank. A world with more ranks than GPUs is left out: NCCL refuses two ranks on one.
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/half.hpp"
#include "comm/devices.hpp"
#include "comm/nccl_communicator.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "support/catch.hpp"
#include "support/gpu.hpp"

using namespace lockstep;
using namespace lockstep::comm;

namespace {

/// Whether every rank has a GPU of its own, which is then current.
bool gpus_for(const mpi::Communicator& world) {
  if (!test::gpu_here()) return false;
  const int devices = cuda::device_count();
  if (devices < world.size()) {
    WARN("more ranks than GPUs: not run");
    return false;
  }
  cuda::set_device(assign_devices(world).device);
  return true;
}

/// A rank with its streams, its communicator and one registered array of halves.
struct Rig {
  explicit Rig(const mpi::Communicator& world, std::int64_t count)
      : ranks(world, {.cuda = true, .timeout_seconds = 60}, compute.raw()),
        bits(ranks.allocate(count * 2)),
        count(count) {}

  void write(const std::vector<float>& values) {
    std::vector<std::uint16_t> halves(values.size());
    float_to_half(values.data(), halves.data(), count);
    cuda::copy(bits.get(), halves.data(), count * 2, compute.raw());
    compute.synchronize();
  }
  std::vector<float> read() const {
    std::vector<std::uint16_t> halves(count);
    cuda::copy(halves.data(), bits.get(), count * 2, compute.raw());
    compute.synchronize();
    std::vector<float> values(halves.size());
    half_to_float(halves.data(), values.data(), count);
    return values;
  }
  Buffer range(std::int64_t begin, std::int64_t length) const {
    return {static_cast<std::uint16_t*>(bits.get()) + begin, length, Scalar::float16};
  }

  cuda::Stream compute;
  NcclCommunicator ranks;
  std::shared_ptr<void> bits;
  std::int64_t count;
};

std::vector<float> ramp(std::int64_t count, int rank) {
  std::vector<float> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>((i + rank) % 31);
  return values;
}

std::vector<float> sum_of_ramps(std::int64_t count, int size) {
  std::vector<float> sums(count);
  for (int rank = 0; rank < size; ++rank) {
    const auto values = ramp(count, rank);
    for (std::int64_t i = 0; i < count; ++i) sums[i] += values[i];
  }
  return sums;
}

}  // namespace

TEST_CASE("NCCL sums ranges of registered halves beside the compute stream", "[ranks][gpu]") {
  const auto world = mpi::Communicator::world();
  if (!gpus_for(world)) return;
  constexpr std::int64_t kCount = 1'000'003;
  Rig rig(world, kCount);
  CHECK_THAT(rig.ranks.describe(), test::contains("nccl 2.") && test::contains("memory"));
  WARN(rig.ranks.describe());
  CHECK((rig.read() == std::vector<float>(kCount, 0)));  // zeroed
  rig.write(ramp(kCount, world.rank()));
  rig.ranks.start_all_reduce(rig.range(0, 4096));
  rig.ranks.start_all_reduce(rig.range(4096, 0));
  rig.ranks.start_all_reduce(rig.range(4096, kCount - 4096));
  rig.ranks.finish();
  CHECK((rig.read() == sum_of_ramps(kCount, world.size())));
  rig.ranks.barrier();
}

TEST_CASE("NCCL carries an infinity of one rank to all", "[ranks][gpu]") {
  const auto world = mpi::Communicator::world();
  if (!gpus_for(world)) return;
  Rig rig(world, 4096);
  for (int source = 0; source < world.size(); ++source) {
    std::vector<float> values(4096, 1);
    if (world.rank() == source) values[17] = std::numeric_limits<float>::infinity();
    rig.write(values);
    rig.ranks.all_reduce(rig.range(0, 4096));
    const auto sums = rig.read();
    CHECK(std::isinf(sums[17]));
    CHECK(sums[18] == static_cast<float>(world.size()));
  }
}

TEST_CASE("NCCL broadcast, all_gather and reduce_scatter give known values, also in place", "[ranks][gpu]") {
  const auto world = mpi::Communicator::world();
  if (!gpus_for(world)) return;
  const std::int64_t row = 1024;
  const std::int64_t count = row * world.size();
  Rig rig(world, count);
  const Buffer own = rig.range(world.rank() * row, row);

  rig.write(ramp(count, world.rank()));
  rig.ranks.broadcast(rig.range(0, count), world.size() - 1);
  CHECK((rig.read() == ramp(count, world.size() - 1)));

  rig.write(std::vector<float>(count, static_cast<float>(world.rank())));
  rig.ranks.all_gather(own, rig.bits.get());
  const auto gathered = rig.read();
  for (std::int64_t i = 0; i < count; ++i) REQUIRE(gathered[i] == static_cast<float>(i / row));

  rig.write(ramp(count, world.rank()));
  rig.ranks.reduce_scatter(rig.range(0, count), own.data);
  const auto scattered = rig.read();
  const auto sums = sum_of_ramps(count, world.size());
  for (std::int64_t i = world.rank() * row; i < (world.rank() + 1) * row; ++i)
    REQUIRE(scattered[i] == sums[i]);
}

TEST_CASE("a captured reduction replays with the bits of the eager one", "[ranks][gpu]") {
  const auto world = mpi::Communicator::world();
  if (!gpus_for(world)) return;
  constexpr std::int64_t kCount = 100'003;
  Rig rig(world, kCount);
  std::vector<float> values(kCount);
  for (std::int64_t i = 0; i < kCount; ++i)
    values[i] = std::ldexp(1.f + static_cast<float>(i % 977) / 1024, (i + world.rank()) % 9 - 4);
  const auto reduce = [&] {
    rig.ranks.start_all_reduce(rig.range(0, 4096));
    rig.ranks.start_all_reduce(rig.range(4096, kCount - 4096));
    rig.ranks.finish();
  };
  rig.write(values);
  reduce();
  const auto eager = rig.read();

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t program = nullptr;
  cuda::check(cudaStreamBeginCapture(rig.compute.raw(), cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
  CHECK(cuda::is_capturing(rig.compute.raw()));
  reduce();
  cuda::check(cudaStreamEndCapture(rig.compute.raw(), &graph), "cudaStreamEndCapture");
  cuda::check(cudaGraphInstantiate(&program, graph, 0), "cudaGraphInstantiate");
  for (int replay = 0; replay < 3; ++replay) {
    rig.write(values);
    cuda::check(cudaGraphLaunch(program, rig.compute.raw()), "cudaGraphLaunch");
    CHECK((rig.read() == eager));
  }
  rig.ranks.barrier();
  // Before the communicator: it waits for graphs that hold its collectives.
  cuda::check(cudaGraphExecDestroy(program), "cudaGraphExecDestroy");
  cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TEST_CASE("the factory's communicator on GPUs sums, and its memory may outlive it", "[ranks][gpu]") {
  const auto world = mpi::Communicator::world();
  if (!gpus_for(world)) return;
  const cuda::Stream compute;
  auto ranks = make_communicator(world, {.cuda = true}, compute.raw());
  const auto memory = ranks->allocate(sizeof(float));
  const float one = 1;
  float sum = 0;
  cuda::copy(memory.get(), &one, sizeof one, compute.raw());
  ranks->all_reduce({memory.get(), 1, Scalar::float32});
  cuda::copy(&sum, memory.get(), sizeof sum, compute.raw());
  ranks->barrier();
  CHECK(sum == static_cast<float>(world.size()));
  ranks.reset();
}
