#include "train/place.hpp"

#include <limits>

#include "support/catch.hpp"

using namespace lockstep;
using config::OverlapMode;

namespace {

train::Place place(c10::DeviceType type, bool hopper_host) {
  train::Place place;
  place.device = c10::Device(type);
  place.hopper_host = hopper_host;
  return place;
}

config::ReduceSettings settled(OverlapMode mode, const train::Place& place) {
  config::ReduceSettings settings;
  settings.overlap = mode;
  return train::settle_reduction(settings, place);
}

}  // namespace

TEST_CASE("--overlap auto reduces after the backward pass, all at once, on one host of Hopper GPUs only") {
  const auto after = settled(OverlapMode::automatic, place(c10::kCUDA, true));
  CHECK(after.overlap == OverlapMode::off);
  CHECK(after.bucket_bytes == std::numeric_limits<std::int64_t>::max());
  CHECK(after.first_bucket_bytes == after.bucket_bytes);
  for (const auto& other : {place(c10::kCUDA, false), place(c10::kCPU, false)}) {
    const auto beside = settled(OverlapMode::automatic, other);
    CHECK(beside.overlap == OverlapMode::on);
    CHECK(beside.bucket_bytes == config::ReduceSettings().bucket_bytes);
  }
}

TEST_CASE("--overlap on and off, and their buckets, are taken as they are given") {
  for (const auto mode : {OverlapMode::on, OverlapMode::off}) {
    const auto kept = settled(mode, place(c10::kCUDA, true));
    CHECK(kept.overlap == mode);
    CHECK(kept.bucket_bytes == config::ReduceSettings().bucket_bytes);
    CHECK(kept.first_bucket_bytes == config::ReduceSettings().first_bucket_bytes);
  }
}
