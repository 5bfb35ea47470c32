#pragma once

#include <algorithm>
#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep::ops {

/// How workers share `tiles` long sums of `steps` steps each, so that all end at about the same time and most
/// are at the same step of different tiles at any time, which the cache then reads once for all of them.
///
/// The first parts * tiles workers take `part_steps` steps of one tile each, all tiles' first parts before
/// the second ones. What is left of all tiles, `rest_steps` each, is laid end to end and cut into equal
/// shares. Every piece of a tile that one worker sums has a slot for its result.
struct WorkSplit {
  int tiles, steps;
  int parts, part_steps;
  int rest_steps, rest_workers;
  std::int64_t rest_share;
};

/// `tiles`, `steps` and `workers` at least 1.
inline WorkSplit split_work(int tiles, int steps, int workers) {
  const auto up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  WorkSplit split{tiles, steps, std::min(workers / tiles, steps), 0, steps, 0, 0};
  const int rest_workers = workers - split.parts * tiles;
  if (split.parts > 0) {
    // Where few workers are left over, their shares cost more results to add than they save.
    const bool even = 16 * rest_workers <= workers;
    split.part_steps =
        static_cast<int>(even ? up(steps, split.parts) : up(std::int64_t{tiles} * steps, workers));
    split.rest_steps = std::max(0, steps - split.parts * split.part_steps);
  }
  if (split.rest_steps == 0) {
    split.parts = static_cast<int>(up(steps, split.part_steps));
    return split;
  }
  const std::int64_t rest = std::int64_t{tiles} * split.rest_steps;
  split.rest_share = up(rest, rest_workers);
  split.rest_workers = static_cast<int>(up(rest, split.rest_share));
  return split;
}

LOCKSTEP_HOST_DEVICE inline int workers_of(const WorkSplit& split) {
  return split.parts * split.tiles + split.rest_workers;
}
/// Slots that there are; a few may stay empty.
LOCKSTEP_HOST_DEVICE inline int slot_count(const WorkSplit& split) {
  return workers_of(split) + (split.rest_workers > 0 ? split.tiles : 0);
}

/// Steps [first, first + count) of a tile, and where their sum goes.
struct Segment {
  int tile, first, count, slot;
};

LOCKSTEP_HOST_DEVICE inline std::int64_t steps_of(const WorkSplit& split, int worker) {
  const int whole = split.parts * split.tiles;
  if (worker < whole) {
    const int first = worker / split.tiles * split.part_steps;
    return split.steps - first < split.part_steps ? split.steps - first : split.part_steps;
  }
  const std::int64_t begin = (worker - whole) * split.rest_share;
  const std::int64_t left = std::int64_t{split.tiles} * split.rest_steps - begin;
  return left < split.rest_share ? left : split.rest_share;
}

/// A worker's next segment after `done` of its steps_of().
LOCKSTEP_HOST_DEVICE inline Segment segment_of(const WorkSplit& split, int worker, std::int64_t done) {
  const int whole = split.parts * split.tiles;
  const int left = static_cast<int>(steps_of(split, worker) - done);
  if (worker < whole) return {worker % split.tiles, worker / split.tiles * split.part_steps, left, worker};
  const int rest = worker - whole;
  const std::int64_t position = rest * split.rest_share + done;
  const int tile = static_cast<int>(position / split.rest_steps);
  const int first = static_cast<int>(position - std::int64_t{tile} * split.rest_steps);
  const int in_tile = split.rest_steps - first;
  return {tile, split.parts * split.part_steps + first, left < in_tile ? left : in_tile, whole + rest + tile};
}

/// The slots of a tile, in the order of its steps.
struct TileSlots {
  int count;
  int parts, tiles, tile, first_rest;
  LOCKSTEP_HOST_DEVICE int operator[](int i) const {
    return i < parts ? i * tiles + tile : parts * tiles + tile + first_rest + (i - parts);
  }
};
LOCKSTEP_HOST_DEVICE inline TileSlots slots_of(const WorkSplit& split, int tile) {
  TileSlots slots{split.parts, split.parts, split.tiles, tile, 0};
  if (split.rest_workers == 0) return slots;
  const std::int64_t begin = std::int64_t{tile} * split.rest_steps;
  slots.first_rest = static_cast<int>(begin / split.rest_share);
  slots.count += static_cast<int>((begin + split.rest_steps - 1) / split.rest_share) - slots.first_rest + 1;
  return slots;
}

}  // namespace lockstep::ops
