#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/device.cuh"
#include "ops/hopper/instructions.cuh"
#include "ops/hopper/product.hpp"

/// How hopper_product() cuts its work, and what the warps of a block share.
namespace lockstep::ops::cuda_kernels {

using namespace hopper;

constexpr int kTileRows = kHopperRows;
constexpr int kTileColumns = 192;
constexpr int kTileInner = 64;  // 128 bytes: one row of the swizzle
constexpr int kCluster = 2;
constexpr int kWarpgroup = 128;
constexpr int kThreads = 4 * kWarpgroup;
// Warps 0 to 3 finish, 4 to 11 multiply, 12 loads, 13 and 14 finish: registers go by groups of four warps,
// and each group of multiplying ones must be such a group.
constexpr int kFirstMultiplying = 4;
constexpr int kMultiplying = 8;
constexpr int kLoader = kFirstMultiplying + kMultiplying;
constexpr int kFinishing = 6;
constexpr int kMultiplierRegisters = 152, kOtherRegisters = 104;  // of a thread
static_assert(2 * kMultiplierRegisters + 2 * kOtherRegisters <= 65536 / kWarpgroup);
constexpr int kStages = 4;
using Stage = RingStage<kStages>;
constexpr int kLeftBytes = kTileRows * kTileInner * 2;
constexpr int kRightBytes = kTileColumns * kTileInner * 2;
constexpr int kSwizzleBytes = 1024;                 // its pattern repeats; matrices begin at multiples
constexpr std::int64_t kCachedBytes = 10 << 20;     // of the right matrix
constexpr int kPack = 8;                            // columns of a lane that finishes: 16 bytes
constexpr int kPacks = kTileColumns / kPack;        // of a row
constexpr int kStep = kFinishing * kWarp / kPacks;  // from a lane's row to its next
constexpr int kLaneRows = kTileRows / kStep;
static_assert(kStep == 8 && kPacks % 8 == 0);  // so that a lane's packs lie at one place in their rows

/// Where pack `pack` of a row lies in it: eight rows' packs of one column lie in eight groups of banks.
__device__ inline int swizzled(int row, int pack) {
  return pack ^ row % 8;
}

struct alignas(kSwizzleBytes) Shared {
  unsigned char left[kStages][kLeftBytes];
  unsigned char right[kStages][kRightBytes];
  uint4 tile[kTileRows][kPacks];
  float sums[2][kStep][kTileColumns];  // of this tile and the last
  std::uint64_t full[kStages], empty[kStages], tile_full, tile_empty;
};

static_assert(sizeof(Shared) <= 227 * 1024);  // what a block may have

struct Problem {
  int rows, columns, inner;
  int row_pairs, column_tiles;  // of tiles
  int block;                    // columns of tiles that are done before the next ones are
  const void* bias;
  void* auxiliary;
  void* result;
  float* partial;
};

/// A cluster's turn. Blocks of columns whose part of the right matrix stays in the cache come one after
/// another; in a block neighbours in a row first, so that the left matrix is read from memory once a block.
struct Tile {
  int row, column;  // the first of each
};
/// Of turns that there are.
__device__ inline Tile tile_of(const Problem& problem, int turn, int rank) {
  const int block = turn / (problem.row_pairs * problem.block);
  const int in_block = turn - block * problem.row_pairs * problem.block;
  const int width = min(problem.block, problem.column_tiles - block * problem.block);
  const int pair = in_block / width;
  const int column = in_block - pair * width;
  return {(pair * kCluster + rank) * kTileRows, (block * problem.block + column) * kTileColumns};
}
__device__ inline int turns(const Problem& problem) {
  return problem.row_pairs * problem.column_tiles;
}
__device__ inline int first_turn() {
  return static_cast<int>(blockIdx.x) / kCluster;
}
__device__ inline int turn_step() {
  return static_cast<int>(gridDim.x) / kCluster;
}
__device__ inline int inner_parts(const Problem& problem) {
  return (problem.inner + kTileInner - 1) / kTileInner;
}

template <class T>
__device__ std::uint32_t round_two(float a, float b) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 two = __floats2half2_rn(a, b);
    return reinterpret_cast<const std::uint32_t&>(two);
  } else {
    const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const std::uint32_t&>(two);
  }
}

}  // namespace lockstep::ops::cuda_kernels
