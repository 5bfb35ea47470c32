// The loss scaler's CUDA kernels against the plain loops of reference.cpp.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/half.hpp"
#include "precision/kernels.hpp"
#include "support/catch.hpp"
#include "support/device_array.hpp"
#include "support/gpu.hpp"

using namespace lockstep;
using namespace lockstep::precision;
using test::DeviceArray;

namespace {

/// One sweep of the scanning kernel: 1,024 blocks of 256 threads; each takes eight low elements or one float.
constexpr std::int64_t kFullSweep = 1024 * 256;
constexpr std::int64_t kLowSweep = kFullSweep * 8;

std::uint16_t to_low(float value, LowType type) {
  return type == LowType::half ? float_to_half(value) : float_to_bfloat16(value);
}

float from_low(std::uint16_t bits, LowType type) {
  return type == LowType::half ? half_to_float(bits) : bfloat16_to_float(bits);
}

/// Gradients of one rank on the host and on the device, with everything else that inspect() takes.
struct Rig {
  Rig(LowType type, std::int64_t low_count, std::int64_t full_count, float magnitude)
      : type(type),
        low(random_low(type, low_count, magnitude)),
        full(random_full(full_count, magnitude)),
        device_low(low),
        device_full(full),
        device_rates(rates),
        device_sums(std::vector<double>(kPartials, std::nan(""))),
        device_flags(std::vector<std::int32_t>(kPartials, 1)),  // stale: only what a block wrote may count
        device_state(StepState{}) {}

  static std::vector<std::uint16_t> random_low(LowType type, std::int64_t count, float magnitude) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0, magnitude);
    std::vector<std::uint16_t> values(count);
    for (auto& value : values) value = to_low(normal(generator), type);
    return values;
  }
  static std::vector<float> random_full(std::int64_t count, float magnitude) {
    std::mt19937 generator(2);
    std::normal_distribution<float> normal(0, magnitude);
    std::vector<float> values(count);
    for (auto& value : values) value = normal(generator);
    return values;
  }
  static StepState start(std::int64_t applied_steps = 1) {
    StepState state{};
    state.loss_scale = 1024;
    state.applied_steps = applied_steps;
    state.found_nonfinite = 7;
    return state;
  }

  StepState on_device(const StepState& before, float clip_norm = 0) {
    device_state.put(0, before);
    const GradientView view{device_low.data(), type, static_cast<std::int64_t>(low.size()),
                            device_full.data(), static_cast<std::int64_t>(full.size())};
    cuda_kernels::inspect({view, device_sums.data(), device_flags.data(), device_state.data(), clip_norm,
                           device_rates.data(), static_cast<std::int64_t>(rates.size())},
                          nullptr);
    return device_state.first();
  }
  StepState on_host(StepState state, float clip_norm = 0) const {
    const GradientView view{low.data(), type, static_cast<std::int64_t>(low.size()), full.data(),
                            static_cast<std::int64_t>(full.size())};
    reference::inspect(
        {view, nullptr, nullptr, &state, clip_norm, rates.data(), static_cast<std::int64_t>(rates.size())});
    return state;
  }

  LowType type;
  std::vector<std::uint16_t> low;
  std::vector<float> full;
  std::vector<float> rates{0.5f, 0.25f, 0.125f};
  DeviceArray<std::uint16_t> device_low;
  DeviceArray<float> device_full;
  DeviceArray<float> device_rates;
  DeviceArray<double> device_sums;
  DeviceArray<std::int32_t> device_flags;
  DeviceArray<StepState> device_state;
};

struct Size {
  LowType type;
  std::int64_t low;
  std::int64_t full;
};

std::vector<Size> sizes() {
  std::vector<Size> all{{LowType::none, 0, 1}, {LowType::none, 0, 257}, {LowType::none, 0, kFullSweep + 7}};
  for (const auto type : {LowType::half, LowType::bfloat16}) {
    all.insert(all.end(), {{type, 8, 0},
                           {type, 8, 1},
                           {type, 64, 3},
                           {type, 2048 + 8, 255},
                           {type, kLowSweep + 40, 1000},
                           {type, 72, kFullSweep + 7}});
  }
  return all;
}

/// Every lane of a pack, the edges of warps, blocks and sweeps, and the ends; those that lie inside `count`.
std::vector<std::int64_t> positions(std::int64_t count, std::int64_t sweep) {
  std::vector<std::int64_t> all{0,         1,     2,         3,         4,         5,        6,
                                7,         8,     31,        32,        33,        255,      256,
                                257,       511,   2047,      2048,      2049,      4095,     4096,
                                sweep - 1, sweep, sweep + 1, count - 3, count - 2, count - 1};
  std::erase_if(all, [&](std::int64_t place) { return place < 0 || place >= count; });
  return all;
}

void expect_alike(const StepState& device, const StepState& host) {
  CHECK(device.found_nonfinite == host.found_nonfinite);
  CHECK(device.learning_rate == host.learning_rate);
  CHECK(device.gradient_norm == Approx(host.gradient_norm).epsilon(1e-6));
  CHECK(device.gradient_factor == Approx(host.gradient_factor).epsilon(1e-6));
  CHECK(device.loss_scale == host.loss_scale);
  CHECK(device.applied_steps == host.applied_steps);
}

}  // namespace

TEST_CASE("inspect gives the norm, factor and rate of the reference at any size, with and without clipping",
          "[gpu]") {
  if (!test::gpu_here()) return;
  for (const auto& size : sizes()) {
    INFO("type " << static_cast<int>(size.type) << ", " << size.low << " low, " << size.full << " full");
    Rig rig(size.type, size.low, size.full, 3.0f);
    const float norm = rig.on_host(Rig::start()).gradient_norm;
    REQUIRE(norm > 0);
    for (const float clip : {0.0f, norm / 3, norm * 3}) {
      expect_alike(rig.on_device(Rig::start(), clip), rig.on_host(Rig::start(), clip));
    }
    const auto once = rig.on_device(Rig::start());
    const auto twice = rig.on_device(Rig::start());
    CHECK(std::memcmp(&once, &twice, sizeof once) == 0);
    for (const std::int64_t step : {0, 2, 3, 1000}) {
      CHECK(rig.on_device(Rig::start(step)).learning_rate == rig.rates[std::min<std::int64_t>(step, 2)]);
    }
  }
}

TEST_CASE("inspect sees one inf or NaN at every kind of place, and nothing once it is gone", "[gpu]") {
  if (!test::gpu_here()) return;
  for (const auto& size : sizes()) {
    INFO("type " << static_cast<int>(size.type) << ", " << size.low << " low, " << size.full << " full");
    Rig rig(size.type, size.low, size.full, 1.0f);
    const auto low_values = size.type == LowType::half
                                ? std::vector<std::uint16_t>{0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff}
                                : std::vector<std::uint16_t>{0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff};
    for (const auto place : positions(size.low, kLowSweep)) {
      for (const auto planted : low_values) {
        rig.device_low.put(place, planted);
        INFO("low " << place << " bits " << planted);
        CHECK(rig.on_device(Rig::start()).found_nonfinite == 1);
        CHECK_FALSE(std::isfinite(rig.on_device(Rig::start()).gradient_norm));
      }
      rig.device_low.put(place, rig.low[place]);
    }
    const float inf = std::numeric_limits<float>::infinity();
    for (const auto place : positions(size.full, kFullSweep)) {
      for (const float planted : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
        rig.device_full.put(place, planted);
        INFO("full " << place << " value " << planted);
        CHECK(rig.on_device(Rig::start()).found_nonfinite == 1);
      }
      rig.device_full.put(place, rig.full[place]);
    }
    expect_alike(rig.on_device(Rig::start()), rig.on_host(Rig::start()));
  }
}

TEST_CASE("the largest and the smallest finite gradients have a finite norm that is not zero", "[gpu]") {
  if (!test::gpu_here()) return;
  const float largest_full = std::numeric_limits<float>::max();
  struct Extreme {
    LowType type;
    std::uint16_t low;
    float full;
  };
  for (const auto& extreme :
       {Extreme{LowType::half, 0x7bff, largest_full}, Extreme{LowType::half, 0x0001, 0.0f},
        Extreme{LowType::bfloat16, 0x7f7f, 1.0f}, Extreme{LowType::bfloat16, 0x0800, 0.0f}}) {
    Rig rig(extreme.type, 4096, 33, 1.0f);
    rig.low.assign(rig.low.size(), extreme.low);
    rig.full.assign(rig.full.size(), extreme.full);
    rig.device_low.upload(rig.low);
    rig.device_full.upload(rig.full);
    const auto host = rig.on_host(Rig::start());
    INFO("bits " << extreme.low << " norm " << host.gradient_norm);
    CHECK(host.found_nonfinite == 0);
    CHECK(host.gradient_norm > 0);
    expect_alike(rig.on_device(Rig::start()), host);
  }
}

TEST_CASE("begin_backward and end_step leave the very bits of the reference over a run of steps", "[gpu]") {
  if (!test::gpu_here()) return;
  ScaleRule quick;
  quick.growth_interval = 3;
  ScaleRule tolerant = quick;
  tolerant.hysteresis = 3;
  tolerant.min_scale = 128;
  tolerant.max_scale = 1 << 18;
  ScaleRule fixed;
  fixed.dynamic = false;
  for (const auto& rule : {ScaleRule{}, quick, tolerant, fixed}) {
    std::mt19937 generator(5);
    StepState host{};
    host.loss_scale = rule.dynamic ? 65536 : 1;
    host.hysteresis_left = rule.hysteresis;
    DeviceArray<StepState> device(host);
    DeviceArray<float> loss(0.0f);
    for (int step = 0; step < 200; ++step) {
      const float value = std::generate_canonical<float, 24>(generator) * 100;
      const auto count = static_cast<float>(1 + generator() % 1000);
      host.loss_sum = 0;
      host.found_nonfinite = generator() % 5 == 0;
      device.put(0, host);
      loss.put(0, value);
      for (int micro = 0; micro < 3; ++micro) {
        reference::begin_backward(&host, &value, count);
        cuda_kernels::begin_backward(device.data(), loss.data(), count, nullptr);
      }
      reference::end_step(&host, rule);
      cuda_kernels::end_step(device.data(), rule, nullptr);
      const StepState seen = device.first();
      REQUIRE(std::memcmp(&seen, &host, sizeof host) == 0);
    }
  }
}

TEST_CASE("weights are rounded to nearest even with the bits of the reference", "[gpu]") {
  if (!test::gpu_here()) return;
  // Every upper half of a float with lower halves around its ties.
  std::vector<float> masters;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (const std::uint32_t lower : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t bits = upper << 16 | lower;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      masters.push_back(value);
    }
  }
  const auto total = static_cast<std::int64_t>(masters.size());
  const DeviceArray<float> device_masters(masters);
  for (const auto type : {LowType::half, LowType::bfloat16}) {
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{255}, std::int64_t{256},
                                     std::int64_t{257}, std::int64_t{100003}, total}) {
      constexpr std::uint16_t kUntouched = 0x1234;
      std::vector<std::uint16_t> expected(total + 1, kUntouched);
      const DeviceArray<std::uint16_t> weights(expected);
      reference::round_weights(expected.data(), type, masters.data(), count);
      cuda_kernels::round_weights(weights.data(), type, device_masters.data(), count, nullptr);
      const auto seen = weights.download();
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i <= total; ++i) {
        const bool nan = i < count && std::isnan(masters[i]);  // stays one; its payload is free
        wrong += nan ? !std::isnan(from_low(seen[i], type)) : seen[i] != expected[i];
      }
      INFO("type " << static_cast<int>(type) << ", count " << count);
      CHECK(wrong == 0);
    }
  }
}
