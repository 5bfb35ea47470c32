#pragma once

#include "ops/hopper/tiles.cuh"

/// The warps of hopper_product() that finish tiles: a lane takes 8 columns of every kStep-th row.
namespace lockstep::ops::cuda_kernels {

template <class T>
__device__ void to_floats(const uint4& pack, float (&values)[kPack]) {
  const T* const at = reinterpret_cast<const T*>(&pack);
#pragma unroll
  for (int k = 0; k < kPack; ++k) values[k] = to_float(at[k]);
}

template <class T>
__device__ uint4 round_pack(const float (&values)[kPack]) {
  return make_uint4(round_two<T>(values[0], values[1]), round_two<T>(values[2], values[3]),
                    round_two<T>(values[4], values[5]), round_two<T>(values[6], values[7]));
}

/// op(a, b) of two packs, two elements at a time.
template <class T, class Op>
__device__ uint4 by_twos(const uint4& a, const uint4& b, Op op) {
  using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  uint4 result;
#pragma unroll
  for (int k = 0; k < kPack / 2; ++k)
    reinterpret_cast<Two*>(&result)[k] =
        op(reinterpret_cast<const Two*>(&a)[k], reinterpret_cast<const Two*>(&b)[k]);
  return result;
}

/// A lane's place in every tile.
struct Lane {
  int first;          // row
  int pack;           // of its rows
  int stride;         // of the matrices, from a lane's row to its next, in packs
  const uint4* sums;  // of its first row; the next one's are kStep * kPacks farther on
  __device__ Lane(const Problem& problem, const Shared& shared, int thread)
      : first(thread / kPacks),
        pack(thread % kPacks),
        stride(kStep * (problem.columns / kPack)),
        sums(&shared.tile[first][swizzled(first, pack)]) {}
};

/// A lane's part of a tile of the matrices.
struct Share {
  int rows;    // from the lane's first on, that exist; 0 where it has none
  int offset;  // of the first one, in packs
};
__device__ inline Share share_of(const Problem& problem, int turn, int rank, const Lane& lane) {
  if (turn >= turns(problem)) return {0, 0};
  const Tile tile = tile_of(problem, turn, rank);
  const int column = tile.column + lane.pack * kPack;
  const int row = tile.row + lane.first;
  if (column >= problem.columns || row >= problem.rows) return {0, 0};
  return {problem.rows - row, row * (problem.columns / kPack) + column / kPack};
}

/// kCount rows of a lane from its `begin`-th on. After a tile's last ones the next tile may be handed over.
template <int kCount>
__device__ void take_sums(const Lane& lane, int begin, Shared& shared, uint4 (&packs)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) packs[i] = lane.sums[(begin + i) * kStep * kPacks];
  if (begin + kCount < kLaneRows) return;
  __syncwarp();
  if (threadIdx.x % kWarp == 0) arrive(&shared.tile_empty);
}

/// GELU of a pack, and its slope there.
template <class T>
__device__ uint4 gelu_and_slope(const uint4& in, uint4& slope) {
  float values[kPack];
  float slopes[kPack];
  to_floats<T>(in, values);
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    const float gate = gelu_gate(values[k]);
    slopes[k] = gelu_slope(values[k], gate);
    values[k] *= gate;
  }
  slope = round_pack<T>(slopes);
  return round_pack<T>(values);
}

template <class T, bool kGelu>
__device__ void finish_with_bias(const Problem& problem, Shared& shared, int rank, int thread) {
  constexpr int kGroup = 4;  // rows of a lane at once
  const Lane lane(problem, shared, thread);
  const auto bias_of = [&](int turn) {
    if (turn >= turns(problem)) return uint4{};
    const int pack = tile_of(problem, turn, rank).column / kPack + lane.pack;
    return pack < problem.columns / kPack ? static_cast<const uint4*>(problem.bias)[pack] : uint4{};
  };
  std::uint32_t round = 0;
  uint4 next_bias = bias_of(first_turn());
  for (int turn = first_turn(); turn < turns(problem); turn += turn_step(), round ^= 1) {
    const Share share = share_of(problem, turn, rank, lane);
    const uint4 bias = next_bias;
    next_bias = bias_of(turn + turn_step());
    uint4* result = static_cast<uint4*>(problem.result) + share.offset;
    uint4* slope = static_cast<uint4*>(problem.auxiliary) + share.offset;
    wait(&shared.tile_full, round);
#pragma unroll
    for (int begin = 0; begin < kLaneRows; begin += kGroup) {
      uint4 packs[kGroup];
      take_sums(lane, begin, shared, packs);
#pragma unroll
      for (int i = 0; i < kGroup; ++i, result += lane.stride, slope += lane.stride) {
        const bool exists = (begin + i) * kStep < share.rows;
        packs[i] = by_twos<T>(packs[i], bias, [](auto a, auto b) { return __hadd2(a, b); });
        if constexpr (kGelu) {
          uint4 slopes;
          packs[i] = gelu_and_slope<T>(packs[i], slopes);
          if (exists) __stcs(slope, slopes);
        }
        if (exists) __stcs(result, packs[i]);
      }
    }
  }
}

/// The lanes' sums over their rows to one sum a column of the tile, in a fixed order.
__device__ inline void add_lanes(const Problem& problem, const Tile& tile, const Lane& lane, int thread,
                                 const float (&sums)[kPack], float (&all)[kStep][kTileColumns]) {
  store_floats(&all[lane.first][lane.pack * kPack], sums);
  asm volatile("bar.sync 1, %0;" ::"n"(kFinishing * kWarp) : "memory");
  float sum = 0;
#pragma unroll
  for (int row = 0; row < kStep; ++row) sum += all[row][thread];
  if (tile.row < problem.rows && tile.column + thread < problem.columns)
    problem.partial[tile.row / kTileRows * problem.columns + tile.column + thread] = sum;
}

template <class T>
__device__ void finish_with_factor(const Problem& problem, Shared& shared, int rank, int thread) {
  constexpr int kGroup = 2;  // rows of a lane at once
  constexpr int kAhead = 8;  // factors of a lane under way
  const Lane lane(problem, shared, thread);
  Share share = share_of(problem, first_turn(), rank, lane);
  const uint4* factor = static_cast<const uint4*>(problem.auxiliary) + share.offset;
  uint4 ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i, factor += lane.stride)
    if (i * kStep < share.rows) ahead[i] = __ldcs(factor);
  std::uint32_t round = 0;
  for (int turn = first_turn(); turn < turns(problem); turn += turn_step(), round ^= 1) {
    const Share next = share_of(problem, turn + turn_step(), rank, lane);
    float sums[kPack] = {};
    uint4* result = static_cast<uint4*>(problem.result) + share.offset;
    wait(&shared.tile_full, round);
#pragma unroll
    for (int begin = 0; begin < kLaneRows; begin += kGroup) {
      uint4 packs[kGroup];
      take_sums(lane, begin, shared, packs);
      if (begin + kAhead == kLaneRows) factor = static_cast<const uint4*>(problem.auxiliary) + next.offset;
#pragma unroll
      for (int i = 0; i < kGroup; ++i, result += lane.stride, factor += lane.stride) {
        const int row = begin + i;
        uint4& now = ahead[row % kAhead];
        packs[i] = by_twos<T>(packs[i], now, [](auto a, auto b) { return __hmul2(a, b); });
        if (row + kAhead < kLaneRows ? (row + kAhead) * kStep < share.rows
                                     : (row + kAhead - kLaneRows) * kStep < next.rows)
          now = __ldcs(factor);
        if (row * kStep >= share.rows) continue;
        __stcs(result, packs[i]);
        float values[kPack];
        to_floats<T>(packs[i], values);
#pragma unroll
        for (int k = 0; k < kPack; ++k) sums[k] += values[k];
      }
    }
    add_lanes(problem, tile_of(problem, turn, rank), lane, thread, sums, shared.sums[round]);
    share = next;
  }
}

template <class T, ProductEpilogue kEpilogue>
__device__ void finish_tiles(const Problem& problem, Shared& shared, int rank, int thread) {
  if constexpr (kEpilogue == ProductEpilogue::factor_sums) {
    finish_with_factor<T>(problem, shared, rank, thread);
  } else {
    finish_with_bias<T, kEpilogue == ProductEpilogue::bias_gelu>(problem, shared, rank, thread);
  }
}

}  // namespace lockstep::ops::cuda_kernels
