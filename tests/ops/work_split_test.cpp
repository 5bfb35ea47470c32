// Every step of every tile has one worker and one slot, and workers end at about the same time.
#include "ops/hopper/work_split.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.hpp"

using namespace lockstep::ops;

namespace {

void check(int tiles, int steps, int workers) {
  INFO(tiles << " tiles of " << steps << " steps for " << workers << " workers");
  const WorkSplit split = split_work(tiles, steps, workers);
  REQUIRE(workers_of(split) <= workers);
  std::vector<std::vector<int>> slot_of(tiles, std::vector<int>(steps, -1));
  std::set<int> slots;
  std::int64_t most = 0;
  for (int worker = 0; worker < workers_of(split); ++worker) {
    const std::int64_t work = steps_of(split, worker);
    REQUIRE(work > 0);
    most = std::max(most, work);
    for (std::int64_t done = 0; done < work;) {
      const Segment segment = segment_of(split, worker, done);
      REQUIRE(segment.count > 0);
      REQUIRE(segment.slot < slot_count(split));
      REQUIRE(slots.insert(segment.slot).second);
      for (int step = segment.first; step < segment.first + segment.count; ++step) {
        REQUIRE(slot_of.at(segment.tile).at(step) == -1);
        slot_of[segment.tile][step] = segment.slot;
      }
      done += segment.count;
    }
  }
  for (int tile = 0; tile < tiles; ++tile) {
    const TileSlots own = slots_of(split, tile);
    std::vector<int> expected;
    for (const int slot : slot_of[tile])
      if (expected.empty() || expected.back() != slot) expected.push_back(slot);
    std::vector<int> seen;
    for (int i = 0; i < own.count; ++i) seen.push_back(own[i]);
    REQUIRE(seen == expected);  // none without a step, none missing
  }
  const double even = static_cast<double>(tiles) * steps / workers;
  if (steps >= workers) REQUIRE(most <= 1.07 * even + 2);
}

}  // namespace

TEST_CASE("a split of long sums covers each step once, in slots of its tile, evenly") {
  for (const int workers : {1, 2, 57, 66})
    for (const int tiles : {1, 2, 9, 16, 27, 36, 48, 64, 66, 67, 100, 591})
      for (const int steps : {1, 2, 3, 7, 64, 79, 313, 512, 1024}) check(tiles, steps, workers);
}
