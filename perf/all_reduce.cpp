// Sums of half over all ranks, by size: `mpirun -np N all_reduce [cpu] [MAX_CHANNELS]`.
// Rank 0 prints one JSON line a size from 1 MiB to 512 MiB (64 MiB on CPU ranks): microseconds of one
// reduction among twenty in a row, and bus bandwidth = bytes x 2 (N - 1) / N / seconds. The sum is checked:
// every rank adds its number plus one.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "cuda/device.hpp"
#include "mpi/environment.hpp"
#include "mpi/job.hpp"
#include "precision/stream.hpp"

using namespace lockstep;

namespace {

constexpr int kRuns = 20;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of one reduction, the slowest rank's; negative where the sum is wrong.
double measure(comm::Communicator& ranks, const mpi::Communicator& world, void* data, std::int64_t count,
               bool cuda) {
  const auto options = at::TensorOptions().dtype(at::kHalf).device(cuda ? at::kCUDA : at::kCPU);
  const at::Tensor values = at::from_blob(data, {count}, options);
  const auto wait = [&] {
    if (cuda) torch::cuda::synchronize();
    world.barrier();
  };
  values.fill_(world.rank() + 1);
  ranks.all_reduce({data, count, comm::Scalar::float16});
  wait();
  const float expected = static_cast<float>(world.size()) * static_cast<float>(world.size() + 1) / 2;
  const bool right = values.eq(expected).all().item<bool>();
  values.zero_();
  wait();
  const double start = seconds();
  for (int run = 0; run < kRuns; ++run) ranks.all_reduce({data, count, comm::Scalar::float16});
  if (cuda) torch::cuda::synchronize();
  const double mine = (seconds() - start) / kRuns;
  return world.min(right ? 1.0 : -1.0) * world.max(mine);
}

int run(const mpi::Communicator& world, bool cuda, int channels) {
  comm::Options options;
  options.cuda = cuda;
  options.max_channels = channels;
  std::optional<c10::cuda::CUDAStreamGuard> guard;
  if (cuda) {
    cuda::set_device(mpi::locate(world).local_rank);
    guard.emplace(c10::cuda::getStreamFromPool());
  }
  const auto ranks = comm::make_communicator(world, options, cuda ? precision::current_stream() : nullptr);
  const std::int64_t most = std::int64_t{cuda ? 512 : 64} << 20;
  const auto memory = ranks->allocate(most);
  int wrong = 0;
  for (std::int64_t bytes = 1 << 20; bytes <= most; bytes *= 2) {
    const double took = measure(*ranks, world, memory.get(), bytes / 2, cuda);
    if (took < 0) wrong = 1;
    if (world.rank() != 0) continue;
    const double n = world.size();
    std::printf(
        "{\"ranks\": %d, \"transport\": \"%s\", \"max_channels\": %d, \"bytes\": %ld, \"us\": %.1f, "
        "\"bus_gb_per_s\": %.2f, "
        "\"right\": %s}\n",
        world.size(), ranks->describe().c_str(), channels, static_cast<long>(bytes), std::abs(took) * 1e6,
        static_cast<double>(bytes) * 2 * (n - 1) / n / std::abs(took) / 1e9, took < 0 ? "false" : "true");
    std::fflush(stdout);
  }
  return wrong;
}

}  // namespace

int main(int count, char** arguments) {
  bool cuda = true;
  int channels = 0;
  for (int i = 1; i < count; ++i) {
    if (std::string(arguments[i]) == "cpu") {
      cuda = false;
    } else {
      channels = std::atoi(arguments[i]);
    }
  }
  const mpi::Environment environment(&count, &arguments);
  const auto world = mpi::Communicator::world();
  return mpi::run_or_abort(world, [&] { return run(world, cuda, channels); });
}
