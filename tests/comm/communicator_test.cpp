#include "comm/communicator.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/half.hpp"
#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::comm;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<std::int64_t> kCounts = {0,  1,    3,
                                           64, 1000, 1'048'576 + 5};  // the last is longer than one chunk

struct Half {
  using Type = std::uint16_t;
  static constexpr Scalar kScalar = Scalar::float16;
  static Type narrow(double value) { return float_to_half(static_cast<float>(value)); }
};
struct Bfloat {
  using Type = std::uint16_t;
  static constexpr Scalar kScalar = Scalar::bfloat16;
  static Type narrow(double value) { return float_to_bfloat16(static_cast<float>(value)); }
};
template <class T, Scalar scalar>
struct Plain {
  using Type = T;
  static constexpr Scalar kScalar = scalar;
  static Type narrow(double value) { return static_cast<T>(value); }
};

/// Element i of rank r: a whole number small enough that each format holds it and its sum over 4 ranks
/// exactly.
double value_of(std::int64_t i, int rank) {
  return static_cast<double>((i + rank) % 31);
}

template <class Format>
std::vector<typename Format::Type> values_of(std::int64_t first, std::int64_t count, int rank) {
  std::vector<typename Format::Type> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = Format::narrow(value_of(first + i, rank));
  return values;
}

template <class Format>
std::vector<typename Format::Type> sums_of(std::int64_t first, std::int64_t count, int size) {
  std::vector<typename Format::Type> sums(count);
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += value_of(first + i, rank);
    sums[i] = Format::narrow(sum);
  }
  return sums;
}

template <class Format>
Buffer buffer_of(std::vector<typename Format::Type>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), Format::kScalar};
}

std::vector<std::uint16_t> halves(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits(values.size());
  float_to_half(values.data(), bits.data(), static_cast<std::int64_t>(values.size()));
  return bits;
}

template <class Format>
void check_collectives(Communicator& ranks) {
  const int size = ranks.size();
  for (const auto count : kCounts) {
    auto values = values_of<Format>(0, count, ranks.rank());
    ranks.all_reduce(buffer_of<Format>(values));
    CHECK((values == sums_of<Format>(0, count, size)));

    auto sent = values_of<Format>(0, count, ranks.rank());
    ranks.broadcast(buffer_of<Format>(sent), size - 1);
    CHECK((sent == values_of<Format>(0, count, size - 1)));

    auto piece = values_of<Format>(0, count, ranks.rank());
    std::vector<typename Format::Type> all(count * size);
    ranks.all_gather(buffer_of<Format>(piece), all.data());
    for (int rank = 0; rank < size; ++rank) {
      const auto begin = all.begin() + rank * count;
      CHECK((std::vector<typename Format::Type>(begin, begin + count) == values_of<Format>(0, count, rank)));
    }

    auto rows = values_of<Format>(0, count * size, ranks.rank());
    ranks.reduce_scatter(buffer_of<Format>(rows), piece.data());
    CHECK((piece == sums_of<Format>(ranks.rank() * count, count, size)));
    auto in_place = values_of<Format>(0, count * size, ranks.rank());
    ranks.reduce_scatter(buffer_of<Format>(in_place), in_place.data() + ranks.rank() * count);
    const auto own = in_place.begin() + ranks.rank() * count;
    CHECK((std::vector<typename Format::Type>(own, own + count) == piece));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("collectives give known values for every scalar type and count", "[ranks]", Half, Bfloat,
                   (Plain<float, Scalar::float32>), (Plain<double, Scalar::float64>),
                   (Plain<std::int64_t, Scalar::int64>), (Plain<std::uint8_t, Scalar::uint8>)) {
  const auto world = mpi::Communicator::world();
  MpiCommunicator over_mpi(world, {});
  check_collectives<TestType>(over_mpi);
  const auto chosen = make_communicator(world, {}, nullptr);
  check_collectives<TestType>(*chosen);
}

TEST_CASE("halves are summed in float and rounded once", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const auto ranks = make_communicator(world, {}, nullptr);
  // 2048 + 1 rounds to 2048 in half, so that summing in half would lose every 1 that a rank adds.
  auto bits = halves({world.rank() == 0 ? 2048.f : 1.f, 1024.5f, 0x1p-24f});
  ranks->all_reduce({bits.data(), 3, Scalar::float16});
  CHECK(bits ==
        halves({2048.f + static_cast<float>(world.size() - 1), 1024.5f * static_cast<float>(world.size()),
                0x1p-24f * static_cast<float>(world.size())}));
}

TEST_CASE("an overflow, infinity or NaN of one rank arrives on every rank", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const auto ranks = make_communicator(world, {}, nullptr);
  for (int source = 0; source < world.size(); ++source) {
    const bool own = world.rank() == source;
    auto bits = halves({own ? kInfinity : 1.f, own ? std::nanf("") : 1.f, 1.f, 40000.f});
    ranks->all_reduce({bits.data(), 4, Scalar::float16});
    CHECK(half_to_float(bits[0]) == kInfinity);
    CHECK(std::isnan(half_to_float(bits[1])));
    CHECK(half_to_float(bits[2]) == static_cast<float>(world.size()));
    CHECK(half_to_float(bits[3]) == (world.size() == 1 ? half_to_float(float_to_half(40000.f)) : kInfinity));
  }
}

TEST_CASE("reductions started one after another all arrive, in any mixture of types", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const auto ranks = make_communicator(world, {}, nullptr);
  std::vector<std::vector<float>> buckets;
  std::vector<std::int64_t> counts(20, world.rank());
  for (int i = 0; i < 20; ++i)
    buckets.push_back(std::vector<float>(1 + 977 * i, static_cast<float>(world.rank() + i)));
  for (int i = 0; i < 20; ++i) {
    ranks->start_all_reduce(
        {buckets[i].data(), static_cast<std::int64_t>(buckets[i].size()), Scalar::float32});
    ranks->start_all_reduce({&counts[i], 1, Scalar::int64});
  }
  ranks->finish();
  ranks->finish();  // nothing to wait for
  const int sum_of_ranks = world.size() * (world.size() - 1) / 2;
  for (int i = 0; i < 20; ++i) {
    const auto expected = static_cast<float>(sum_of_ranks + world.size() * i);
    CHECK((buckets[i] == std::vector<float>(buckets[i].size(), expected)));
    CHECK(counts[i] == sum_of_ranks);
  }
}

TEST_CASE("a started reduction runs beside the calling thread", "[ranks]") {
  const auto world = mpi::Communicator::world();
  MpiCommunicator ranks(world, {});
  std::vector<float> values(1000, 1);
  ranks.barrier();
  ranks.start_all_reduce({values.data(), 1000, Scalar::float32});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // computes, and calls nothing
  const Stopwatch watch;
  ranks.finish();
  CHECK(watch.seconds() < 0.25);
  CHECK(values[999] == static_cast<float>(world.size()));
}

TEST_CASE("an error in the background surfaces in finish and in every call after it", "[ranks]") {
  const auto world = mpi::Communicator::world();
  if (world.size() == 1) return;  // nobody to wait for
  MpiCommunicator ranks(world, {.timeout_seconds = world.rank() == 0 ? 0.2 : 60});
  std::vector<float> values(1000, 1);
  const Buffer buffer = {values.data(), 1000, Scalar::float32};
  if (world.rank() == 0) {
    ranks.start_all_reduce(buffer);
    CHECK_THROWS_AS(ranks.finish(), TimeoutError);
    CHECK_THROWS_AS(ranks.start_all_reduce(buffer), TimeoutError);
    CHECK_THROWS_AS(ranks.barrier(), TimeoutError);
  }
  world.barrier();
  if (world.rank() != 0) ranks.all_reduce(buffer);  // so that nothing is left unfinished
  world.barrier();
  CHECK(values[0] == (world.rank() == 0 ? 1.f : static_cast<float>(world.size())));
}

TEST_CASE("leaving does not wait for ranks that never come", "[ranks]") {
  const auto world = mpi::Communicator::world();
  if (world.size() == 1) return;
  auto ranks = std::make_unique<MpiCommunicator>(world, Options{.timeout_seconds = 60});
  if (world.rank() != 0) {
    std::vector<std::uint16_t> values(1000);
    ranks->start_all_reduce({values.data(), 1000, Scalar::float16});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const Stopwatch watch;
    ranks.reset();
    CHECK(watch.seconds() < 5);
  }
  world.barrier();
  if (world.rank() == 0) {  // so that nothing is left unfinished
    std::vector<std::uint16_t> values(1000);
    ranks->all_reduce({values.data(), 1000, Scalar::float16});
  }
  world.barrier();
}

TEST_CASE("wrong arguments are named", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const auto ranks = make_communicator(world, {}, nullptr);
  float value = 1;
  CHECK_THROWS_WITH(ranks->start_all_reduce({&value, -1, Scalar::float32}),
                    test::contains("-1 elements of float32"));
  CHECK_THROWS_AS(ranks->start_all_reduce({nullptr, 1, Scalar::float32}), UsageError);
  CHECK_THROWS_WITH(ranks->broadcast({&value, 1, Scalar::float32}, world.size()),
                    test::contains("is not one of"));
  if (world.size() > 1) {
    CHECK_THROWS_WITH(ranks->reduce_scatter({&value, 1, Scalar::float32}, &value),
                      test::contains("no multiple of"));
  }
}

TEST_CASE("memory is zeroed, aligned, and outlives the communicator", "[ranks]") {
  const auto world = mpi::Communicator::world();
  auto ranks = make_communicator(world, {}, nullptr);
  for (const std::int64_t bytes : {0, 1, 63, 64, 1'000'001}) {
    const auto memory = ranks->allocate(bytes);
    REQUIRE(memory != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.get()) % 64 == 0);
    const auto* const data = static_cast<const char*>(memory.get());
    CHECK((std::vector<char>(data, data + bytes) == std::vector<char>(bytes, 0)));
  }
  const auto kept = ranks->allocate(8);
  ranks.reset();
  static_cast<char*>(kept.get())[7] = 1;
}

TEST_CASE("a communicator says what it is", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const auto ranks = make_communicator(world, {}, nullptr);
  CHECK(ranks->rank() == world.rank());
  CHECK(ranks->size() == world.size());
  if (world.size() == 1) {
    CHECK(ranks->describe() == "single");
  } else {
    CHECK_THAT(ranks->describe(),
               test::contains("mpi (") && test::contains(std::to_string(world.size()) + " ranks"));
  }
  CHECK(name_of(Scalar::bfloat16) == "bfloat16");
  CHECK(size_of(Scalar::bfloat16) == 2);
}
