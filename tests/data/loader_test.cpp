#include "data/loader.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "data/pack.hpp"
#include "support/catch.hpp"
#include "support/shards.hpp"

using namespace lockstep;
using namespace lockstep::data;
using config::ShuffleMode;
using lockstep::test::contains;
using lockstep::test::make_shards;
using lockstep::test::TemporaryFolder;

namespace {

// What one step holds on one rank, copied out of its slot.
struct Taken {
  std::int64_t step;
  std::int64_t epoch;
  std::int64_t global_count;
  std::vector<std::uint8_t> inputs;
  std::vector<std::int64_t> targets;
  std::vector<std::int64_t> rows;
  friend bool operator==(const Taken&, const Taken&) = default;
};

Taken take(Loader& loader, std::int64_t width) {
  const Slot& slot = loader.next();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(slot.inputs);
  Taken taken{slot.step,
              slot.epoch,
              slot.global_count,
              {bytes, bytes + slot.count * width},
              {slot.targets, slot.targets + slot.count},
              slot.rows};
  loader.release(slot);
  return taken;
}

std::vector<Taken> take_all(const DataSet& data, std::int64_t batch, LoaderSettings settings,
                            ShuffleMode mode = ShuffleMode::automatic) {
  Loader loader(data, Order(data.row_blocks(), 7, batch, mode), settings);
  std::vector<Taken> all;
  for (std::int64_t step = settings.first_step; step < settings.end_step; ++step) {
    all.push_back(take(loader, data.input_row_bytes()));
  }
  return all;
}

LoaderSettings steps(std::int64_t end, std::int64_t first = 0) {
  LoaderSettings settings;
  settings.first_step = first;
  settings.end_step = end;
  return settings;
}

}  // namespace

TEST_CASE("slots hold the rows of the order, their pixels and labels, step after step") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {20, 30});
  const DataSet data = DataSet::open(folder.path());
  Order order(data.row_blocks(), 7, 8);
  for (const Taken& taken : take_all(data, 8, steps(20))) {
    CHECK(taken.epoch == taken.step / 7);
    CHECK(taken.global_count == (taken.step % 7 == 6 ? 2 : 8));
    REQUIRE(static_cast<std::int64_t>(taken.rows.size()) == taken.global_count);
    for (std::size_t i = 0; i < taken.rows.size(); ++i) {
      CHECK(taken.rows[i] == order.row(taken.step, static_cast<std::int64_t>(i)));
      CHECK(taken.targets[i] == test::label(taken.rows[i], 10));
      CHECK(taken.inputs[i * 16 + 15] == test::pixel(taken.rows[i], 15));
    }
  }
}

TEST_CASE("how far is read ahead changes nothing") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {20, 30});
  const DataSet data = DataSet::open(folder.path());
  LoaderSettings settings = steps(30);
  settings.augment_shift = 2;
  settings.prefetch = 1;
  const auto one = take_all(data, 8, settings);
  settings.prefetch = 4;
  CHECK(take_all(data, 8, settings) == one);
  settings.cache_bytes = 0;
  CHECK(take_all(data, 8, settings) == one);
}

TEST_CASE("21 or 7 rows on one to four ranks: each row once, in one order, some ranks with fewer or none") {
  for (const std::int64_t rows : {21, 7, 2}) {
    const TemporaryFolder folder;
    make_shards(folder.path(), {rows});
    const DataSet data = DataSet::open(folder.path());
    for (const std::int64_t batch : {4, 64}) {
      const std::int64_t count = (rows + batch - 1) / batch;
      const auto alone = take_all(data, batch, steps(count));
      for (std::int64_t world = 2; world <= 4; ++world) {
        std::vector<std::vector<Taken>> ranks;
        for (std::int64_t rank = 0; rank < world; ++rank) {
          LoaderSettings settings = steps(count);
          settings.rank = rank;
          settings.world = world;
          ranks.push_back(take_all(data, batch, settings));
          REQUIRE(ranks.back().size() == alone.size());  // every rank takes as many steps
        }
        for (std::size_t step = 0; step < alone.size(); ++step) {
          Taken joined = ranks[0][step];
          for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
            const Taken& part = ranks[rank][step];
            CHECK(part.global_count == joined.global_count);
            joined.inputs.insert(joined.inputs.end(), part.inputs.begin(), part.inputs.end());
            joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
            joined.rows.insert(joined.rows.end(), part.rows.begin(), part.rows.end());
          }
          CHECK(joined == alone[step]);
        }
      }
    }
  }
}

TEST_CASE("145 samples on three ranks with batch 16: ten steps an epoch everywhere, the last of one sample") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {145});
  const DataSet data = DataSet::open(folder.path());
  std::set<std::int64_t> rows;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    LoaderSettings settings = steps(10);
    settings.rank = rank;
    settings.world = 3;
    const auto taken = take_all(data, 16, settings, ShuffleMode::blocks);
    REQUIRE(taken.size() == 10);
    CHECK(taken.back().global_count == 1);
    CHECK(taken.back().rows.size() == (rank == 2 ? 1 : 0));
    for (const Taken& step : taken) rows.insert(step.rows.begin(), step.rows.end());
  }
  CHECK(rows.size() == 145);
}

TEST_CASE(
    "a loader that begins in mid-epoch or at an epoch's end gives what one from the start gives there") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {50});
  const DataSet data = DataSet::open(folder.path());
  LoaderSettings settings = steps(25);
  settings.augment_shift = 1;
  const auto whole = take_all(data, 8, settings);
  for (const std::int64_t first : {3, 7, 14, 20}) {
    settings.first_step = first;
    CHECK(take_all(data, 8, settings) == std::vector<Taken>(whole.begin() + first, whole.end()));
  }
}

TEST_CASE("micro-batches cut the rank's rows, some empty where there are fewer rows than micro-batches") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {10});
  const DataSet data = DataSet::open(folder.path());
  LoaderSettings settings = steps(2);
  settings.accumulation = 3;
  Loader loader(data, Order(data.row_blocks(), 7, 8), settings);
  CHECK(loader.next().micro == std::vector<Share>{{0, 2}, {2, 5}, {5, 8}});
  CHECK(loader.next().micro == std::vector<Share>{{0, 0}, {0, 1}, {1, 2}});
}

TEST_CASE("images are moved by keys of seed, epoch and row: alike on any rank, otherwise in the next epoch") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {40}, {2, 6, 7});
  const DataSet data = DataSet::open(folder.path());
  LoaderSettings settings = steps(10);
  settings.augment_shift = 2;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::uint8_t>> images;
  for (const Taken& taken : take_all(data, 8, settings)) {
    for (std::size_t i = 0; i < taken.rows.size(); ++i) {
      const std::vector<std::uint8_t> image(taken.inputs.begin() + static_cast<std::ptrdiff_t>(i) * 84,
                                            taken.inputs.begin() + static_cast<std::ptrdiff_t>(i + 1) * 84);
      images[{taken.epoch, taken.rows[i]}] = image;
      const Shift shift = image_shift(7, taken.epoch, taken.rows[i], 2);
      for (std::int64_t c = 0; c < 2; ++c) {
        for (std::int64_t y = 0; y < 6; ++y) {
          for (std::int64_t x = 0; x < 7; ++x) {
            const std::int64_t from_y = y - shift.dy;
            const std::int64_t from_x = x - shift.dx;
            const bool inside = from_y >= 0 && from_y < 6 && from_x >= 0 && from_x < 7;
            const std::uint8_t expected =
                inside ? test::pixel(taken.rows[i], (c * 6 + from_y) * 7 + from_x) : 0;
            REQUIRE(image[static_cast<std::size_t>((c * 6 + y) * 7 + x)] == expected);
          }
        }
      }
    }
  }
  int changed = 0;
  for (std::int64_t row = 0; row < 40; ++row) changed += images.at({0, row}) != images.at({1, row});
  CHECK(changed > 30);
  settings.rank = 1;
  settings.world = 3;
  for (const Taken& taken : take_all(data, 8, settings)) {
    for (std::size_t i = 0; i < taken.rows.size(); ++i) {
      CHECK(std::equal(taken.inputs.begin() + static_cast<std::ptrdiff_t>(i) * 84,
                       taken.inputs.begin() + static_cast<std::ptrdiff_t>(i + 1) * 84,
                       images.at({taken.epoch, taken.rows[i]}).begin()));
    }
  }
}

TEST_CASE("shifts reach every distance equally often, and wide elements move whole") {
  std::vector<int> times(25);
  for (std::int64_t row = 0; row < 25000; ++row) {
    const Shift shift = image_shift(3, 1, row, 2);
    ++times[static_cast<std::size_t>((shift.dy + 2) * 5 + shift.dx + 2)];
  }
  CHECK(*std::min_element(times.begin(), times.end()) > 880);
  CHECK(*std::max_element(times.begin(), times.end()) < 1120);
  const float in[4] = {1, 2, 3, 4};
  float out[4] = {9, 9, 9, 9};
  shift_image(reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out), {1, 2, 2}, 4,
              {1, -1});
  CHECK(std::vector<float>(out, out + 4) == std::vector<float>{0, 3, 0, 0});
}

TEST_CASE("memory comes from the caller, once for each slot, and is given back") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {40});
  const DataSet data = DataSet::open(folder.path());
  std::atomic<int> alive = 0;
  int asked = 0;
  LoaderSettings settings = steps(30);
  settings.prefetch = 3;
  settings.world = 3;
  settings.allocate = [&](std::int64_t bytes) {
    ++asked;
    ++alive;
    const std::shared_ptr<void> memory = host_memory(bytes);
    return std::shared_ptr<void>(memory.get(), [&alive, memory](void*) { --alive; });
  };
  {
    Loader loader(data, Order(data.row_blocks(), 7, 8), settings);
    CHECK(loader.capacity() == 3);
    for (int i = 0; i < 30; ++i) take(loader, 16);
    CHECK(asked == 6);
    CHECK(alive == 6);
  }
  CHECK(alive == 0);
}

TEST_CASE("a slot is not refilled before its user says that it is free") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {40});
  const DataSet data = DataSet::open(folder.path());
  LoaderSettings settings = steps(3);
  settings.prefetch = 1;
  Loader loader(data, Order(data.row_blocks(), 7, 8), settings);
  const Slot& first = loader.next();
  const std::vector<std::int64_t> rows = first.rows;
  std::atomic<bool> still_there = false;
  loader.release(first, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    still_there = first.rows == rows && first.step == 0;
  });
  const Slot& second = loader.next();
  CHECK(still_there);
  CHECK(second.step == 1);
  CHECK(second.wait_seconds > 0.04);
}

TEST_CASE("all slots held and steps beyond the end are errors, not waits without end") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {40});
  const DataSet data = DataSet::open(folder.path());
  LoaderSettings settings = steps(3);
  settings.prefetch = 2;
  Loader loader(data, Order(data.row_blocks(), 7, 8), settings);
  const Slot& first = loader.next();
  loader.next();
  CHECK_THROWS_WITH(loader.next(), contains("all 2 slots"));
  loader.release(first);
  CHECK(loader.next().step == 2);
  CHECK_THROWS_WITH(loader.next(), contains("step 3 was asked of a loader that ends before step 3"));
}

TEST_CASE("an error of the thread reaches the caller as it is, after the slots that were filled before it") {
  const TemporaryFolder folder;
  const auto paths = make_shards(folder.path(), {16, 16});
  const DataSet data = DataSet::open(folder.path());
  std::filesystem::remove(paths[1]);
  Loader loader(data, Order(data.row_blocks(), 7, 8, ShuffleMode::none), steps(4));
  CHECK(take(loader, 16).step == 0);
  CHECK(take(loader, 16).step == 1);
  for (int i = 0; i < 2; ++i) {
    try {
      loader.next();
      FAIL("no error");
    } catch (const DataError& error) {
      CHECK(error.code() == ExitCode::input_missing);
      CHECK_THAT(error.what(), contains("shard-00001.h5"));
    }
  }
}

TEST_CASE("a loader can be left at any moment") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {40});
  const DataSet data = DataSet::open(folder.path());
  for (int taken = 0; taken < 20; ++taken) {
    Loader loader(data, Order(data.row_blocks(), 7, 8), steps(1000));
    for (int i = 0; i < taken; ++i) take(loader, 16);
  }
}

TEST_CASE("settings that make no sense are usage errors") {
  const TemporaryFolder folder;
  make_shards(folder / "images", {4});
  make_shards(folder / "rows", {4}, {16});
  const DataSet images = DataSet::open(folder / "images");
  const DataSet rows = DataSet::open(folder / "rows");
  const auto make = [](const DataSet& data, LoaderSettings settings) {
    Loader loader(data, Order(data.row_blocks(), 7, 8), settings);
  };
  LoaderSettings settings = steps(1);
  settings.prefetch = 0;
  CHECK_THROWS_AS(make(images, settings), UsageError);
  settings = steps(1);
  settings.rank = 1;
  CHECK_THROWS_WITH(make(images, settings), contains("rank 1 of world size 1"));
  settings = steps(1);
  settings.augment_shift = 1;
  CHECK_THROWS_WITH(make(rows, settings), contains("rows of shape [16] cannot be shifted"));
  settings.augment_shift = 4;
  CHECK_THROWS_WITH(make(images, settings), contains("images of 4 x 4 cannot be shifted by up to 4"));
}
