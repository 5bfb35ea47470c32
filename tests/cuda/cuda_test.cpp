#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"
#include "support/catch.hpp"
#include "support/gpu.hpp"

using namespace lockstep;
using namespace lockstep::cuda;

namespace {

ExitCode code_of(cudaError_t status) {
  try {
    check(status, "a call");
  } catch (const ApiError& error) {
    return error.code();
  }
  return ExitCode::done;
}

}  // namespace

TEST_CASE("a CUDA error carries the call, the runtime's name and words, and the exit code that fits") {
  CHECK_NOTHROW(check(cudaSuccess, "a call"));
  CHECK_THROWS_WITH(
      check(cudaErrorMemoryAllocation, "cudaMalloc(1 GiB)"),
      test::contains("CUDA: cudaMalloc(1 GiB) failed with 2") && test::contains("cudaErrorMemoryAllocation"));
  CHECK(code_of(cudaErrorMemoryAllocation) == ExitCode::unavailable);
  CHECK(code_of(cudaErrorECCUncorrectable) == ExitCode::unavailable);
  CHECK(code_of(cudaErrorNoDevice) == ExitCode::unavailable);
  CHECK(code_of(cudaErrorInvalidValue) == ExitCode::internal);
}

TEST_CASE("counting devices never throws, and a device that is not there is an error") {
  const int count = device_count();
  CHECK(count >= 0);
  CHECK_THROWS_AS(describe(count), ApiError);
  CHECK_THROWS_AS(set_device(count), ApiError);
  CHECK(device_count() == count);  // the failure left nothing behind
}

TEST_CASE("no bytes need no memory and no device") {
  CHECK(DeviceBuffer(0).data() == nullptr);
  CHECK(PinnedBuffer(0).data() == nullptr);
  CHECK_NOTHROW(copy(nullptr, nullptr, 0, nullptr));
  CHECK_NOTHROW(clear(nullptr, 0, nullptr));
}

TEST_CASE("a device is described with what identifies it", "[gpu]") {
  if (!test::gpu_here()) return;
  const auto device = describe(0);
  CHECK(device.index == 0);
  CHECK(!device.name.empty());
  CHECK(device.uuid.size() == 40);
  CHECK(device.uuid.rfind("GPU-", 0) == 0);
  CHECK(device.pci_bus.size() == 12);
  CHECK(device.major >= 5);
  CHECK(device.multiprocessors > 0);
  CHECK(device.memory_bytes > (1 << 28));
}

TEST_CASE("copies and clears follow the order of their stream and the events between streams", "[gpu]") {
  if (!test::gpu_here()) return;
  set_device(0);
  constexpr std::int64_t kCount = 1 << 22;
  const std::int64_t bytes = kCount * static_cast<std::int64_t>(sizeof(int));
  Stream first;
  Stream second(Priority::high);
  Event filled;
  const DeviceBuffer device(bytes);
  const PinnedBuffer from(bytes);
  const PinnedBuffer to(bytes);
  for (std::int64_t i = 0; i < kCount; ++i) from.as<int>()[i] = static_cast<int>(i);
  clear(device.data(), bytes, first.raw());
  copy(device.data(), from.data(), bytes, first.raw());
  filled.record(first.raw());
  second.wait(filled);
  copy(to.data(), device.data(), bytes, second.raw());
  second.synchronize();
  CHECK(filled.done());
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < kCount; ++i) wrong += to.as<int>()[i] != i;
  CHECK(wrong == 0);
}

TEST_CASE("an event is done once its stream has passed it", "[gpu]") {
  if (!test::gpu_here()) return;
  set_device(0);
  Stream stream;
  Event event;
  CHECK(event.done());  // never recorded
  event.record(stream.raw());
  event.synchronize();
  CHECK(event.done());
  CHECK_FALSE(is_capturing(stream.raw()));
}

TEST_CASE("more memory than there is gives an error that names the size, and the device stays usable",
          "[gpu]") {
  if (!test::gpu_here()) return;
  set_device(0);
  CHECK_THROWS_WITH(DeviceBuffer(std::int64_t{1} << 50), test::contains("1024.00 TiB"));
  CHECK(DeviceBuffer(1 << 20).data() != nullptr);
}

TEST_CASE("events with timing tell the seconds between them, others tell none", "[gpu]") {
  if (!test::gpu_here()) return;
  const cuda::Stream stream;
  const cuda::DeviceBuffer memory(256 << 20);
  cuda::Event begin(cuda::Timing::on), end(cuda::Timing::on), plain;
  begin.record(stream.raw());
  for (int i = 0; i < 10; ++i) cuda::clear(memory.data(), memory.bytes(), stream.raw());
  end.record(stream.raw());
  plain.record(stream.raw());
  stream.synchronize();
  const auto took = end.seconds_since(begin);
  REQUIRE(took);
  CHECK(*took > 1e-5);
  CHECK(*took < 10);
  CHECK_FALSE(plain.seconds_since(begin));
  CHECK(cuda::Event(cuda::Timing::on).done());  // and the device goes on
}
