// The optimizers' CUDA kernels against the plain loops of reference.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/half.hpp"
#include "optim/kernels.hpp"
#include "support/catch.hpp"
#include "support/device_array.hpp"
#include "support/gpu.hpp"

using namespace lockstep;
using namespace lockstep::optim;
using precision::LowType;
using precision::StepState;
using test::DeviceArray;

namespace {

/// Masters, moments, weights and gradients of made-up parameters, laid out as FlatParameters does.
struct Flat {
  Flat(LowType type, const std::vector<std::int64_t>& low_counts,
       const std::vector<std::int64_t>& full_counts)
      : type(type) {
    for (const auto count : low_counts) add(count, 0.1f);
    low_count = size;
    for (const auto count : full_counts) add(count, 0.0f);
    masters.resize(size);
    gradients.resize(size);
    moments[0].resize(size);
    moments[1].resize(size);
    inside.resize(size);
    std::mt19937 generator(8);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform(0.01f, 1.0f);
    for (const auto& chunk : chunks) {
      for (std::int64_t i = chunk.begin; i < chunk.begin + chunk.count; ++i) {
        masters[i] = normal(generator);
        moments[0][i] = 0.1f * normal(generator);
        moments[1][i] = uniform(generator);
        inside[i] = true;
      }
    }
    low_weights.resize(low_count);
    widened.resize(low_count);
    next_gradients(generator());
  }

  void add(std::int64_t count, float decay) {
    for (std::int64_t done = 0; done < count; done += kChunk) {
      const auto piece = static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, count - done));
      chunks.push_back({size + done, piece, decay});
    }
    size += (count + 63) / 64 * 64;
  }

  /// Scaled by 1024, as a loss scale would.
  void next_gradients(unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0, 1024);
    for (std::int64_t i = 0; i < size; ++i) gradients[i] = inside[i] ? normal(generator) : 0.0f;
    low_gradients.resize(low_count);
    for (std::int64_t i = 0; i < low_count; ++i) low_gradients[i] = to_low(gradients[i]);
  }
  std::vector<float> full_gradients() const { return {gradients.begin() + low_count, gradients.end()}; }
  std::uint16_t to_low(float value) const {
    return type == LowType::half ? float_to_half(value) : float_to_bfloat16(value);
  }

  LowType type;
  std::int64_t size = 0;
  std::int64_t low_count = 0;
  std::vector<Chunk> chunks;
  std::vector<float> masters, gradients, moments[2], widened;
  std::vector<std::uint16_t> low_weights, low_gradients;
  std::vector<char> inside;  // of a parameter, not padding
};

/// The same arrays on the device.
struct OnDevice {
  explicit OnDevice(const Flat& flat)
      : flat(flat),
        chunks(flat.chunks),
        masters(flat.masters),
        first(flat.moments[0]),
        second(flat.moments[1]),
        low_weights(flat.low_weights),
        low_gradients(flat.low_gradients),
        full_gradients(flat.full_gradients()),
        state(StepState{}) {}

  template <class Rule>
  void step(const Rule& rule, const StepState& now) {
    state.put(0, now);
    low_gradients.upload(flat.low_gradients);
    full_gradients.upload(flat.full_gradients());
    FlatArrays arrays{};
    arrays.chunks = chunks.data();
    arrays.chunk_count = static_cast<std::int64_t>(flat.chunks.size());
    arrays.gradients = {low_gradients.data(), flat.type, flat.low_count, full_gradients.data(),
                        flat.size - flat.low_count};
    arrays.masters = masters.data();
    arrays.moments[0] = first.data();
    arrays.moments[1] = second.data();
    arrays.low_weights = low_weights.data();
    arrays.state = state.data();
    cuda_kernels::step(arrays, rule, nullptr);
  }

  const Flat& flat;
  DeviceArray<Chunk> chunks;
  DeviceArray<float> masters, first, second;
  DeviceArray<std::uint16_t> low_weights, low_gradients;
  DeviceArray<float> full_gradients;
  DeviceArray<StepState> state;
};

template <class Rule>
void step_on_host(Flat& flat, const Rule& rule, const StepState& state) {
  const auto full = flat.full_gradients();
  FlatArrays arrays{};
  arrays.chunks = flat.chunks.data();
  arrays.chunk_count = static_cast<std::int64_t>(flat.chunks.size());
  arrays.gradients = {flat.low_gradients.data(), flat.type, flat.low_count, full.data(),
                      flat.size - flat.low_count};
  arrays.masters = flat.masters.data();
  arrays.moments[0] = flat.moments[0].data();
  arrays.moments[1] = flat.moments[1].data();
  arrays.low_weights = flat.low_weights.data();
  arrays.widened_weights = flat.widened.data();
  arrays.state = &state;
  reference::step(arrays, rule);
}

StepState state_at(std::int64_t applied_steps) {
  StepState state{};
  state.loss_scale = 1024;
  state.gradient_factor = 1.0f / 1024;
  state.learning_rate = 0.01f;
  state.applied_steps = applied_steps;
  return state;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN stays
  }
  return largest;
}

std::vector<Flat> layouts() {
  const std::vector<std::int64_t> many{1, 3, 63, 64, 65, kChunk, kChunk + 1, 9001};
  std::vector<Flat> all{{LowType::none, {}, {1}}, {LowType::none, {}, {130, 5000, 7}}};
  for (const auto type : {LowType::half, LowType::bfloat16}) {
    all.emplace_back(type, std::vector<std::int64_t>{5}, std::vector<std::int64_t>{});
    all.emplace_back(type, many, std::vector<std::int64_t>{1, 130, 5000});
  }
  return all;
}

template <class Rule>
void expect_like_reference(const Rule& rule) {
  for (const std::int64_t applied : {0, 1, 999}) {
    for (Flat& flat : layouts()) {
      INFO("type " << static_cast<int>(flat.type) << ", size " << flat.size << ", after " << applied
                   << " steps");
      OnDevice device(flat);
      for (int step = 0; step < 3; ++step) {
        flat.next_gradients(static_cast<unsigned>(step));
        device.step(rule, state_at(applied + step));
        step_on_host(flat, rule, state_at(applied + step));
      }
      const auto masters = device.masters.download();
      CHECK(largest_difference(masters, flat.masters) < 4e-6f);
      CHECK(largest_difference(device.first.download(), flat.moments[0]) < 4e-6f);
      CHECK(largest_difference(device.second.download(), flat.moments[1]) < 4e-6f);
      const auto weights = device.low_weights.download();
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < flat.low_count; ++i) wrong += weights[i] != flat.to_low(masters[i]);
      for (std::int64_t i = 0; i < flat.size; ++i) wrong += !flat.inside[i] && masters[i] != 0;
      CHECK(wrong == 0);
    }
  }
}

template <class Rule>
void expect_skipped(const Rule& rule) {
  for (Flat& flat : layouts()) {
    flat.gradients.assign(flat.size, std::numeric_limits<float>::quiet_NaN());
    flat.low_gradients.assign(flat.low_count, 0x7fff);
    OnDevice device(flat);
    StepState state = state_at(3);
    state.found_nonfinite = 1;
    device.step(rule, state);
    CHECK((device.masters.download() == flat.masters));
    CHECK((device.first.download() == flat.moments[0]));
    CHECK((device.second.download() == flat.moments[1]));
    CHECK((device.low_weights.download() == flat.low_weights));
  }
}

constexpr AdamW kAdamW{0.9, 0.999, 1e-8f};
constexpr Momentum kMomentum{0.9f};

}  // namespace

TEST_CASE("the AdamW kernel follows its reference in every part and at odd counts", "[gpu]") {
  if (!test::gpu_here()) return;
  expect_like_reference(kAdamW);
}

TEST_CASE("the SGD kernel follows its reference in every part and at odd counts", "[gpu]") {
  if (!test::gpu_here()) return;
  expect_like_reference(kMomentum);
}

TEST_CASE("a skipped step leaves every bit of masters, moments and weights on the device", "[gpu]") {
  if (!test::gpu_here()) return;
  expect_skipped(kAdamW);
  expect_skipped(kMomentum);
}

TEST_CASE("the optimizers' kernels give the same bits twice", "[gpu]") {
  if (!test::gpu_here()) return;
  for (Flat& flat : layouts()) {
    OnDevice once(flat);
    OnDevice again(flat);
    once.step(kAdamW, state_at(4));
    again.step(kAdamW, state_at(4));
    CHECK((once.masters.download() == again.masters.download()));
    CHECK((once.low_weights.download() == again.low_weights.download()));
  }
}
