#include "data/order.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::data;
using config::ShuffleMode;
using lockstep::test::contains;

namespace {

using Numbers = std::vector<std::int64_t>;

// Row blocks of `block` rows, the last of them shorter where it must be.
RowBlocks blocks_of(std::int64_t rows, std::int64_t block, std::int64_t row_bytes = 16) {
  RowBlocks blocks;
  for (std::int64_t row = 0; row < rows; row += block) blocks.edges.push_back(row);
  blocks.edges.push_back(rows);
  blocks.row_bytes = row_bytes;
  return blocks;
}

Numbers epoch_rows(Order& order, std::int64_t epoch) {
  Numbers rows;
  const std::int64_t first = epoch * order.steps_per_epoch();
  for (std::int64_t step = first; step < first + order.steps_per_epoch(); ++step) {
    for (std::int64_t position = 0; position < order.batch_size(step); ++position) {
      rows.push_back(order.row(step, position));
    }
  }
  return rows;
}

bool is_permutation_of(Numbers rows, std::int64_t count) {
  Numbers all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  std::sort(rows.begin(), rows.end());
  return rows == all;
}

}  // namespace

TEST_CASE("a keyed permutation is a bijection of any count, another one for each key") {
  for (const std::int64_t count : {1, 2, 3, 7, 16, 17, 1000, 65537, 1000003}) {
    const Permutation permutation(count, 42);
    std::vector<bool> seen(static_cast<std::size_t>(count));
    std::int64_t distinct = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = permutation(i);
      REQUIRE(at >= 0);
      REQUIRE(at < count);
      distinct += !seen[static_cast<std::size_t>(at)];
      seen[static_cast<std::size_t>(at)] = true;
    }
    CHECK(distinct == count);
  }
  const Permutation a(1000, 1);
  const Permutation b(1000, 2);
  int equal = 0;
  for (int i = 0; i < 1000; ++i) equal += a(i) == b(i);
  CHECK(equal < 10);
}

TEST_CASE("over many keys all orders of three and of two are equally likely") {
  std::map<Numbers, int> three;
  int swapped = 0;
  for (std::uint64_t key = 0; key < 6000; ++key) {
    const Permutation permutation(3, key);
    ++three[{permutation(0), permutation(1), permutation(2)}];
    swapped += Permutation(2, key)(0) == 1;
  }
  REQUIRE(three.size() == 6);
  double chi_squared = 0;
  for (const auto& [order, times] : three) chi_squared += (times - 1000.0) * (times - 1000.0) / 1000.0;
  CHECK(chi_squared < 20.5);  // 5 degrees of freedom, p = 0.001
  CHECK(std::abs(swapped - 3000) < 130);
}

TEST_CASE("over many keys an index goes to each place equally often, and neighbours go apart") {
  for (const std::int64_t count : {7, 100, 1000}) {
    std::vector<double> hits(static_cast<std::size_t>(count));
    std::vector<double> steps(static_cast<std::size_t>(count));
    const std::int64_t keys = count * 100;
    for (std::int64_t key = 0; key < keys; ++key) {
      const Permutation permutation(count, static_cast<std::uint64_t>(key));
      ++hits[static_cast<std::size_t>(permutation(0))];
      ++steps[static_cast<std::size_t>((permutation(1) - permutation(0) + count) % count)];
    }
    const auto deviation = [](const std::vector<double>& counts, std::size_t skip, double expected) {
      double chi_squared = 0;
      for (std::size_t i = skip; i < counts.size(); ++i)
        chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
      const auto freedom = static_cast<double>(counts.size() - skip - 1);
      return (chi_squared - freedom) / std::sqrt(2 * freedom);
    };
    CHECK(std::abs(deviation(hits, 0, 100)) < 4.5);
    CHECK(std::abs(deviation(steps, 1, static_cast<double>(keys) / static_cast<double>(count - 1))) < 4.5);
  }
}

TEST_CASE("every epoch holds each row once, in every mode and with every raggedness") {
  for (const ShuffleMode mode : {ShuffleMode::none, ShuffleMode::full, ShuffleMode::blocks}) {
    for (const std::int64_t rows : {1, 2, 16, 100, 145, 1000, 4097}) {
      for (const std::int64_t batch : {1, 7, 16, 64, 96, 5000}) {
        Order order(blocks_of(rows, 13), 3, batch, mode);
        for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
          INFO("mode " << static_cast<int>(mode) << ", " << rows << " rows, batch " << batch << ", epoch "
                       << epoch);
          REQUIRE(is_permutation_of(epoch_rows(order, epoch), rows));
        }
      }
    }
  }
}

TEST_CASE("only the last step of an epoch is short, and steps are counted through all epochs") {
  Order order(blocks_of(145, 10), 1, 16, ShuffleMode::blocks);
  CHECK(order.steps_per_epoch() == 10);
  for (std::int64_t step = 0; step < 30; ++step) CHECK(order.batch_size(step) == (step % 10 == 9 ? 1 : 16));
  CHECK(order.epoch_of(9) == 0);
  CHECK(order.epoch_of(10) == 1);
  CHECK_THROWS_AS(order.row(9, 1), UsageError);
  CHECK_THROWS_AS(order.row(-1, 0), UsageError);
  CHECK_THROWS_WITH(Order(blocks_of(5, 5), 1, 0), contains("the global batch is 0"));
}

TEST_CASE("shuffled epochs differ from each other, from file order and between seeds; file order stays") {
  for (const ShuffleMode mode : {ShuffleMode::full, ShuffleMode::blocks}) {
    Order order(blocks_of(1000, 20), 5, 32, mode);
    Order other(blocks_of(1000, 20), 6, 32, mode);
    std::set<Numbers> orders{epoch_rows(order, 0), epoch_rows(order, 1), epoch_rows(order, 2),
                             epoch_rows(other, 0)};
    Numbers in_order(1000);
    std::iota(in_order.begin(), in_order.end(), 0);
    orders.insert(in_order);
    CHECK(orders.size() == 5);
  }
  Order none(blocks_of(1000, 20), 5, 32, ShuffleMode::none);
  CHECK(epoch_rows(none, 0) == epoch_rows(none, 1));
}

TEST_CASE("a row is found without those before it, in any order of asking") {
  for (const ShuffleMode mode : {ShuffleMode::full, ShuffleMode::blocks}) {
    Order forward(blocks_of(500, 9), 5, 32, mode);
    std::vector<Numbers> epochs;
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) epochs.push_back(epoch_rows(forward, epoch));
    Order fresh(blocks_of(500, 9), 5, 32, mode);
    CHECK(fresh.row(3 * 16 + 2, 5) == epochs[3][2 * 32 + 5]);
    CHECK(fresh.row(1, 0) == epochs[0][32]);
    CHECK(fresh.row(2 * 16 + 15, 19) == epochs[2][499]);
  }
}

TEST_CASE("automatic shuffles all rows up to a gibibyte and row blocks beyond") {
  CHECK(Order(blocks_of(1024, 64, 1 << 20), 1, 16).mode() == ShuffleMode::full);
  CHECK(Order(blocks_of(1025, 64, 1 << 20), 1, 16).mode() == ShuffleMode::blocks);
}

TEST_CASE("lanes divide the global batch, are at most 64, and hold at least one window each") {
  const auto lanes = [](std::int64_t rows, std::int64_t block, std::int64_t batch) {
    return Order(blocks_of(rows, block), 1, batch, ShuffleMode::blocks).lanes();
  };
  CHECK(lanes(100000, 10, 512) == 64);
  CHECK(lanes(100000, 10, 96) == 48);
  CHECK(lanes(100000, 10, 97) == 1);
  CHECK(lanes(100000, 10, 60) == 60);
  CHECK(lanes(1000, 100, 512) == 2);
  CHECK(lanes(100, 100, 512) == 1);
}

TEST_CASE(
    "a batch of the blocks mode takes as many rows from each lane, and a lane stays within few blocks") {
  Order order(blocks_of(8192, 16), 1, 64, ShuffleMode::blocks);
  REQUIRE(order.lanes() == 64);
  // The blocks that one rank of 64, so one lane, needs over a whole epoch: its own eight, each once, four at
  // a time.
  std::map<std::int64_t, std::int64_t> first_step;
  std::map<std::int64_t, std::int64_t> last_step;
  for (std::int64_t step = 0; step < order.steps_per_epoch(); ++step) {
    const std::int64_t block = order.row(step, 5) / 16;
    first_step.try_emplace(block, step);
    last_step[block] = step;
  }
  CHECK(first_step.size() == 8);
  for (const auto& [block, step] : last_step) CHECK(step / 64 == first_step[block] / 64);
}

TEST_CASE("other blocks meet in a batch in each epoch") {
  Order order(blocks_of(8192, 16), 1, 64, ShuffleMode::blocks);
  std::set<std::set<std::int64_t>> first_windows;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> blocks;
    for (std::int64_t step = 0; step < 64; ++step)
      blocks.insert(order.row(epoch * order.steps_per_epoch() + step, 0) / 16);
    CHECK(blocks.size() == 4);
    first_windows.insert(blocks);
  }
  CHECK(first_windows.size() == 3);
}

TEST_CASE("class-sorted shards give mixed batches in the blocks mode") {
  Order order(blocks_of(6400, 10), 1, 64, ShuffleMode::blocks);
  for (std::int64_t step = 0; step < order.steps_per_epoch(); ++step) {
    std::set<std::int64_t> classes;
    for (std::int64_t position = 0; position < 64; ++position)
      classes.insert(order.row(step, position) / 640);
    REQUIRE(classes.size() >= 8);  // of 10, sorted by class
  }
}

TEST_CASE("ranks and micro-batches cut a batch exactly, whatever their number") {
  for (const std::int64_t batch : {0, 1, 7, 21, 64, 145}) {
    for (std::int64_t world = 1; world <= 9; ++world) {
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < world; ++rank) {
        const Share part = share(batch, rank, world);
        CHECK(part.first == next);
        CHECK(part.count() >= batch / world);
        CHECK(part.count() <= (batch + world - 1) / world);
        next = part.last;
        std::int64_t micro_next = part.first;
        for (std::int64_t micro = 0; micro < 3; ++micro) {
          CHECK(micro_share(part, micro, 3).first == micro_next);
          micro_next = micro_share(part, micro, 3).last;
        }
        CHECK(micro_next == part.last);
      }
      CHECK(next == batch);
    }
  }
}

TEST_CASE(
    "16 rows on one rank, batch 4, go on with two ranks at step 2: the rest exactly once, in the same "
    "order") {
  Order one(blocks_of(16, 4), 9, 4);
  const Numbers whole = epoch_rows(one, 0);
  Numbers seen(whole.begin(), whole.begin() + 8);
  for (std::int64_t step = 2; step < 4; ++step) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      Order resumed(blocks_of(16, 4), 9, 4);  // each rank has its own, made anew
      const Share part = share(resumed.batch_size(step), rank, 2);
      for (std::int64_t position = part.first; position < part.last; ++position) {
        seen.push_back(resumed.row(step, position));
      }
    }
  }
  CHECK(seen == whole);
}

TEST_CASE(
    "a run resumed exactly at an epoch's end begins the next epoch, and in mid-epoch leaves later epochs "
    "whole") {
  for (const ShuffleMode mode : {ShuffleMode::full, ShuffleMode::blocks}) {
    Order straight(blocks_of(145, 8), 9, 16, mode);
    for (const std::int64_t resumed_at : {10, 13}) {
      Order resumed(blocks_of(145, 8), 9, 16, mode);
      CHECK(resumed.epoch_of(resumed_at) == 1);
      CHECK(resumed.row(resumed_at, 3) == straight.row(resumed_at, 3));
      for (std::int64_t epoch = 2; epoch < 4; ++epoch) {
        const Numbers rows = epoch_rows(resumed, epoch);
        CHECK(is_permutation_of(rows, 145));
        CHECK(rows == epoch_rows(straight, epoch));
        CHECK(rows != epoch_rows(straight, epoch - 1));
        CHECK(rows != epoch_rows(straight, 0));
      }
    }
  }
}
