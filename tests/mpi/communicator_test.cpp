#include "mpi/communicator.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "mpi/check.hpp"
#include "mpi/chunks.hpp"
#include "mpi/environment.hpp"
#include "mpi/job.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::mpi;

namespace {

/// A failing call that MPI returns instead of ending the job.
void call_wrongly(const Communicator& world) {
  int value = 0;
  check(MPI_Bcast(&value, 1, MPI_INT, world.size() + 3, world.raw()), "MPI_Bcast");
}

}  // namespace

TEST_CASE("chunks cover a range once, in order, and none is longer than the limit") {
  for (const std::int64_t total : {0, 1, 9, 10, 11, 30}) {
    std::int64_t next = 0;
    for_each_chunk(total, 10, [&](std::int64_t begin, std::int64_t count) {
      CHECK(begin == next);
      CHECK((count > 0 && count <= 10));
      next = begin + count;
    });
    CHECK(next == total);
  }
}

TEST_CASE("the library tells its name and version in one line") {
  const auto version = library_version();
  CHECK_THAT(version, test::contains("."));
  CHECK(version.find_first_of(",\n\t") == std::string::npos);
#ifdef OPEN_MPI
  CHECK(version.rfind("Open MPI " + std::to_string(OMPI_MAJOR_VERSION) + ".", 0) == 0);
#endif
}

TEST_CASE("a failed MPI call is an ApiError with the call and MPI's words", "[ranks]") {
  const auto world = Communicator::world();
  CHECK_THROWS_WITH(call_wrongly(world),
                    test::contains("MPI: MPI_Bcast failed with") && test::contains("MPI_ERR_ROOT"));
}

TEST_CASE("broadcast carries text, values and bytes from any root", "[ranks]") {
  const auto world = Communicator::world();
  for (int root = 0; root < world.size(); ++root) {
    const bool own = world.rank() == root;
    CHECK(world.broadcast_text(own ? std::string("seed\0 1", 7) : "other words", root) ==
          std::string("seed\0 1", 7));
    CHECK(world.broadcast_text(own ? "" : "other words", root).empty());
    CHECK(world.broadcast_value(own ? 0.1 : 0.0, root) == 0.1);
    std::vector<char> bytes(100'001, own ? 'x' : 'y');
    world.broadcast(bytes.data(), static_cast<std::int64_t>(bytes.size()), root);
    CHECK(bytes == std::vector<char>(100'001, 'x'));
    world.broadcast(nullptr, 0, root);
  }
}

TEST_CASE("sums over ranks are exact for whole numbers, at any count", "[ranks]") {
  const auto world = Communicator::world();
  const auto ranks = static_cast<std::int64_t>(world.size());
  const auto sum_of_ranks = ranks * (ranks - 1) / 2;
  for (const std::int64_t count : {0, 1, 7, 4096, 3'000'001}) {  // the last is longer than one chunk
    std::vector<std::int64_t> whole(count);
    std::vector<float> single(count);
    for (std::int64_t i = 0; i < count; ++i) {
      whole[i] = i * 1'000'003 + world.rank();
      single[i] = static_cast<float>(i % 1000 + world.rank());
    }
    world.sum(whole.data(), count);
    world.sum(single.data(), count);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      wrong += whole[i] != ranks * i * 1'000'003 + sum_of_ranks;
      wrong += single[i] != static_cast<float>(ranks * (i % 1000) + sum_of_ranks);
    }
    CHECK(wrong == 0);
  }
  double fraction = 0.25 * (world.rank() + 1);
  world.sum(&fraction, 1);
  CHECK(fraction == 0.25 * static_cast<double>(sum_of_ranks + ranks));
}

TEST_CASE("a sum has the same bits on every rank, whatever order it was taken in", "[ranks]") {
  const auto world = Communicator::world();
  for (const std::int64_t count : {3, 1000, 200'003}) {
    std::mt19937 random(static_cast<unsigned>(world.rank()));
    std::vector<float> values(count);
    for (auto& value : values)
      value = std::ldexp(static_cast<float>(random()) - 2e9f, static_cast<int>(random() % 40) - 50);
    world.sum(values.data(), count);
    const auto key = static_cast<std::int64_t>(hash_bytes(values.data(), values.size() * sizeof(float)));
    CHECK(world.min(key) == world.max(key));
  }
}

TEST_CASE("an infinity or NaN of one rank arrives in every rank's sum", "[ranks]") {
  const auto world = Communicator::world();
  for (int source = 0; source < world.size(); ++source) {
    float values[] = {1, 1};
    if (world.rank() == source) {
      values[0] = std::numeric_limits<float>::infinity();
      values[1] = std::nanf("");
    }
    world.sum(values, 2);
    CHECK(values[0] == std::numeric_limits<float>::infinity());
    CHECK(std::isnan(values[1]));
  }
}

TEST_CASE("minimum and maximum are over all ranks", "[ranks]") {
  const auto world = Communicator::world();
  const std::int64_t large = std::int64_t{1} << 60;  // beyond what a double holds exactly
  CHECK(world.min(large + world.rank()) == large);
  CHECK(world.max(large + world.rank()) == large + world.size() - 1);
  CHECK(world.min(0.5 - world.rank()) == 0.5 - (world.size() - 1));
  CHECK(world.max(0.5 - world.rank()) == 0.5);
}

TEST_CASE("sum_scatter gives rank r the sum of every rank's row r", "[ranks]") {
  const auto world = Communicator::world();
  const std::int64_t count = 5;
  std::vector<double> all(count * world.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i) + 100 * world.rank();
  std::vector<double> piece(count);
  world.sum_scatter(all.data(), piece.data(), count);
  const double sum_of_ranks = world.size() * (world.size() - 1) / 2.0;
  for (std::int64_t i = 0; i < count; ++i) {
    CHECK(piece[i] == world.size() * static_cast<double>(world.rank() * count + i) + 100 * sum_of_ranks);
  }
  CHECK_THROWS_AS(world.sum_scatter(all.data(), piece.data(), std::int64_t{1} << 31), UsageError);
}

TEST_CASE("all_gather puts values, bytes and text in the order of ranks", "[ranks]") {
  const auto world = Communicator::world();
  const auto values = world.all_gather(std::int64_t{10} + world.rank());
  const auto words = world.all_gather_text(std::string(static_cast<std::size_t>(world.rank()), 'a'));
  std::vector<int> rows(3 * world.size(), -1);
  for (int i = 0; i < 3; ++i) rows[3 * world.rank() + i] = world.rank();
  world.all_gather(&rows[3 * world.rank()], 3 * sizeof(int), rows.data());  // in place
  for (int r = 0; r < world.size(); ++r) {
    CHECK(values[r] == 10 + r);
    CHECK(words[r] == std::string(static_cast<std::size_t>(r), 'a'));
    CHECK((rows[3 * r] == r && rows[3 * r + 2] == r));
  }
}

TEST_CASE("a duplicate is independent: another thread uses it at the same time", "[ranks]") {
  const auto world = Communicator::world();
  const auto other = world.duplicate();
  CHECK(other.rank() == world.rank());
  std::int64_t wrong = 0;
  std::thread thread([&] {
    for (int i = 0; i < 50; ++i) wrong += other.max(std::int64_t{i}) != i;
  });
  for (int i = 0; i < 50; ++i) CHECK(world.max(std::int64_t{1000} + i) == 1000 + i);
  thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("all ranks of one host are one node and have distinct local ranks", "[ranks]") {
  const auto world = Communicator::world();
  const auto node = locate(world);
  CHECK(node.host == host_name());
  CHECK((node.local_rank >= 0 && node.local_rank < node.local_size));
  const auto hosts = world.all_gather_text(node.host);
  const auto local_ranks = world.all_gather(std::int64_t{node.local_rank});
  std::set<std::int64_t> on_this_host;
  for (int r = 0; r < world.size(); ++r) {
    if (hosts[r] == node.host) on_this_host.insert(local_ranks[r]);
  }
  CHECK(static_cast<int>(on_this_host.size()) == node.local_size);
}

TEST_CASE("a wait ends with TimeoutError or when it is told to stop, and barrier_within tells", "[ranks]") {
  const auto world = Communicator::world();
  if (world.size() == 1) return;  // nobody to wait for
  auto late = world.duplicate();
  auto stopped = world.duplicate();
  const auto absent = world.duplicate();
  const std::atomic<bool> stop = true;
  if (world.rank() == 0) {
    late.set_patience({0.1, nullptr});
    CHECK_THROWS_AS(late.barrier(), TimeoutError);
    stopped.set_patience({60, &stop});
    CHECK_THROWS_WITH(stopped.barrier(), test::contains("given up on rank 0"));
    CHECK_FALSE(absent.barrier_within(0.1));
  }
  world.barrier();
  if (world.rank() != 0) {  // so that nothing is left unfinished
    late.barrier();
    stopped.barrier();
    CHECK(absent.barrier_within(20));
  }
  world.barrier();
}
