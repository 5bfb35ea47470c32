#include <algorithm>
#include <cstdint>

#include "base/error.hpp"
#include "cuda/error.hpp"
#include "ops/device.cuh"
#include "ops/hopper/instructions.cuh"
#include "ops/hopper/product.hpp"

/// A matrix product for Hopper whose epilogue runs beside it: while the tensor cores work at one tile, six
/// warps of their own take the last tile's sums from shared memory, rounded, and do with them what the
/// epilogue says.
///
/// Two neighbouring blocks, a cluster, take two tiles with the same columns; each loads half of the right
/// matrix's part and both receive it. In each block one thread loads, eight warps multiply, six finish.
namespace lockstep::ops::cuda_kernels {

namespace {

using namespace hopper;

constexpr int kTileRows = 128;
constexpr int kTileColumns = 192;
constexpr int kTileInner = 64;  // 128 bytes: one row of the swizzle
constexpr int kCluster = 2;
constexpr int kWarpgroup = 128;
constexpr int kThreads = 4 * kWarpgroup;
constexpr int kMultiplying = 8;  // warps
constexpr int kFinishing = 6;    // warps
constexpr int kLoader = 12;      // the warp that loads
constexpr int kStages = 4;
constexpr int kLeftBytes = kTileRows * kTileInner * 2;
constexpr int kRightBytes = kTileColumns * kTileInner * 2;
constexpr int kSwizzleBytes = 1024;                 // its pattern repeats; matrices begin at multiples
constexpr std::int64_t kCachedBytes = 10 << 20;     // of the right matrix
constexpr int kPack = 8;                            // columns of a lane that finishes: 16 bytes
constexpr int kPacks = kTileColumns / kPack;        // of a row
constexpr int kStep = kFinishing * kWarp / kPacks;  // from a lane's row to its next
constexpr int kLaneRows = kTileRows / kStep;
constexpr int kAhead = 4;                      // inputs of a lane under way
static_assert(kStep == 8 && kPacks % 8 == 0);  // so that a lane's packs lie at one place in their rows

/// Where pack `pack` of a row lies in it: eight rows' packs of one column lie in eight banks.
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

/// The stages take turns; a barrier's phase changes with each round.
struct Stage {
  int index = 0;
  std::uint32_t round = 0;
  __device__ void advance() {
    if (++index < kStages) return;
    index = 0;
    round ^= 1;
  }
};

template <bool kByColumns>
__device__ void load_tiles(const Problem& problem, const CUtensorMap& left, const CUtensorMap& right,
                           Shared& shared, int rank) {
  constexpr std::uint16_t kBoth = (1 << kCluster) - 1;
  Stage stage;
  for (int turn = first_turn(); turn < turns(problem); turn += turn_step()) {
    const Tile tile = tile_of(problem, turn, rank);
    for (int part = 0; part < inner_parts(problem); ++part, stage.advance()) {
      wait(&shared.empty[stage.index], stage.round ^ 1);
      std::uint64_t* const full = &shared.full[stage.index];
      arrive_expecting(full, kLeftBytes + kRightBytes);
      copy_box(shared.left[stage.index], left, part * kTileInner, tile.row, full);
      unsigned char* const to = shared.right[stage.index] + rank * (kTileInner / kCluster * 128);
      if constexpr (kByColumns) {
        copy_box_to(kBoth, shared.right[stage.index] + rank * (kRightBytes / kCluster), right,
                    part * kTileInner, tile.column + rank * (kTileColumns / kCluster), full);
      } else {  // half of the rows, 64 columns at a time
#pragma unroll
        for (int box = 0; box < kTileColumns / 64; ++box)
          copy_box_to(kBoth, to + box * (kTileInner * 128), right, tile.column + box * 64,
                      part * kTileInner + rank * (kTileInner / kCluster), full);
      }
    }
  }
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

/// Each warpgroup multiplies half of the tile's rows, and hands its sums over, rounded.
template <class T, bool kByColumns>
__device__ void multiply_tiles(const Problem& problem, Shared& shared) {
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  const int warp = static_cast<int>(threadIdx.x) / kWarp - kWarpgroup / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = warp * 16 + lane % 16;  // whose address this lane names to stmatrix
  const int parts = inner_parts(problem);
  Stage stage;
  std::uint32_t round = 0;
  float sums[kTileColumns / 2];
  for (int turn = first_turn(); turn < turns(problem); turn += turn_step()) {
    int last = 0;
    for (int part = 0; part < parts; ++part) {
      wait(&shared.full[stage.index], stage.round);
      products_begin();
      const unsigned char* const left = shared.left[stage.index] + group * (kLeftBytes / 2);
      const unsigned char* const right = shared.right[stage.index];
#pragma unroll
      for (int step = 0; step < kTileInner / 16; ++step) {
        const std::uint64_t a = matrix_descriptor(left + step * 32, 16, kSwizzleBytes);
        const std::uint64_t b =
            kByColumns ? matrix_descriptor(right + step * 32, 16, kSwizzleBytes)
                       : matrix_descriptor(right + step * (16 * 128), kTileInner * 128, kSwizzleBytes);
        multiply_add<T, kByColumns>(sums, a, b, part > 0 || step > 0);
      }
      products_commit();
      if (part > 0) {
        products_wait<1>();
        if (lane < kCluster) arrive_at(&shared.empty[last], lane);
      }
      last = stage.index;
      stage.advance();
    }
    products_wait<0>();
    if (lane < kCluster) arrive_at(&shared.empty[last], lane);

#ifndef HOPPER_NOEPI
    wait(&shared.tile_empty, round ^ 1);
#pragma unroll
    for (int pack = 0; pack < kPacks; pack += 2) {
      const float* const at = sums + pack * 4;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       shared_address(&shared.tile[row][swizzled(row, pack + lane / 16)])),
                   "r"(round_two<T>(at[0], at[1])), "r"(round_two<T>(at[2], at[3])),
                   "r"(round_two<T>(at[4], at[5])), "r"(round_two<T>(at[6], at[7]))
                   : "memory");
    }
    __syncwarp();
    if (lane == 0) arrive(&shared.tile_full);
    round ^= 1;
#else
    if (sums[0] == 123.f && sums[77] == 32.f) static_cast<float*>(problem.result)[0] = 2;
#endif
  }
}

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

template <class T>
__device__ uint4 add_packs(const uint4& a, const uint4& b) {
  using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  uint4 sum;
#pragma unroll
  for (int k = 0; k < kPack / 2; ++k)
    reinterpret_cast<Two*>(&sum)[k] =
        __hadd2(reinterpret_cast<const Two*>(&a)[k], reinterpret_cast<const Two*>(&b)[k]);
  return sum;
}

/// A lane's part of a tile: 8 columns of every kStep-th row.
struct Share {
  int rows;    // of the tile, from the lane's first on, that exist; 0 where the columns do not
  int offset;  // of the first one, in packs
};
__device__ inline Share share_of(const Problem& problem, int turn, int rank, int thread) {
  const Tile tile = tile_of(problem, turn, rank);
  const int column = tile.column + thread % kPacks * kPack;
  const int row = tile.row + thread / kPacks;
  const bool exists = turn < turns(problem) && column < problem.columns;
  return {exists ? problem.rows - row : 0, row * (problem.columns / kPack) + column / kPack};
}

/// The warps that finish take the rows of a tile in turn.
template <class T, ProductEpilogue kEpilogue>
__device__ void finish_tiles(const Problem& problem, Shared& shared, int rank, int thread) {
  constexpr bool kSlope = kEpilogue == ProductEpilogue::gelu_slope_sums;
  constexpr int kGroup = kSlope ? 2 : 4;                 // rows of a lane at once
  const int stride = kStep * (problem.columns / kPack);  // from a lane's row to its next, in packs
  const int first = thread / kPacks;
  const int pack = thread % kPacks;
  const uint4* const from = &shared.tile[first][swizzled(first, pack)];
  const auto bias_of = [&](int turn) {
    const int column = tile_of(problem, turn, rank).column / kPack + pack;
    if (turn >= turns(problem) || column >= problem.columns / kPack) return uint4{};
    return static_cast<const uint4*>(problem.bias)[column];
  };
  std::uint32_t round = 0;
  int turn = first_turn();
  Share share = share_of(problem, turn, rank, thread);
  uint4 next_bias = {};
  uint4 ahead[kSlope ? kAhead : 1];
  const uint4* input = static_cast<const uint4*>(problem.auxiliary) + share.offset;
  if constexpr (kSlope) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i, input += stride)
      if (i * kStep < share.rows) ahead[i] = __ldcs(input);
  } else {
    next_bias = bias_of(turn);
  }
  while (turn < turns(problem)) {
    const int next_turn = turn + turn_step();
    const Share next = share_of(problem, next_turn, rank, thread);
    const uint4 bias = next_bias;
    if constexpr (!kSlope) next_bias = bias_of(next_turn);
    float sums[kPack] = {};
    uint4* result = static_cast<uint4*>(problem.result) + share.offset;
    uint4* auxiliary = static_cast<uint4*>(problem.auxiliary) + share.offset;
    wait(&shared.tile_full, round);
#pragma unroll
    for (int begin = 0; begin < kLaneRows; begin += kGroup) {
      uint4 packs[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) packs[i] = from[(begin + i) * kStep * kPacks];
      if (begin + kGroup == kLaneRows) {
        __syncwarp();
        if (thread % kWarp == 0) arrive(&shared.tile_empty);
      }
      if constexpr (kSlope) {
        if (begin + kAhead == kLaneRows) input = static_cast<const uint4*>(problem.auxiliary) + next.offset;
      }
#pragma unroll
      for (int i = 0; i < kGroup; ++i, result += stride, auxiliary += stride) {
        const bool exists = (begin + i) * kStep < share.rows;
        float values[kPack];
        if constexpr (kSlope) {
          float in[kPack];
          to_floats<T>(packs[i], values);
          to_floats<T>(ahead[(begin + i) % kAhead], in);
          const bool wanted = begin + i + kAhead < kLaneRows
                                  ? (begin + i + kAhead) * kStep < share.rows
                                  : (begin + i + kAhead - kLaneRows) * kStep < next.rows;
          if (wanted) ahead[(begin + i) % kAhead] = __ldcs(input);
          input += stride;
#pragma unroll
          for (int k = 0; k < kPack; ++k) {
            values[k] *= gelu_slope(in[k]);
            if (exists) sums[k] += values[k];
          }
          packs[i] = round_pack<T>(values);
        } else {
          packs[i] = add_packs<T>(packs[i], bias);
          if constexpr (kEpilogue == ProductEpilogue::bias_gelu) {
            if (exists) __stcs(auxiliary, packs[i]);
            to_floats<T>(packs[i], values);
#pragma unroll
            for (int k = 0; k < kPack; ++k) values[k] = gelu(values[k]);
            packs[i] = round_pack<T>(values);
          }
        }
        if (exists) __stcs(result, packs[i]);
      }
    }
    if constexpr (kSlope) {
      const Tile tile = tile_of(problem, turn, rank);
      float(&all)[kStep][kTileColumns] = shared.sums[round];
      store_floats(&all[first][pack * kPack], sums);
      asm volatile("bar.sync 1, %0;" ::"n"(kFinishing * kWarp) : "memory");
      float sum = 0;
#pragma unroll
      for (int row = 0; row < kStep; ++row) sum += all[row][thread];
      if (tile.row < problem.rows && tile.column + thread < problem.columns)
        problem.partial[tile.row / kTileRows * problem.columns + tile.column + thread] = sum;
    }
    round ^= 1;
    turn = next_turn;
    share = next;
  }
}

template <class T, bool kByColumns, ProductEpilogue kEpilogue>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    product(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
            const Problem problem) {
  extern __shared__ __align__(kSwizzleBytes) unsigned char raw[];
  Shared& shared = *reinterpret_cast<Shared*>(raw);
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    prefetch_map(left);
    prefetch_map(right);
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(&shared.full[stage], 1);
      barrier_init(&shared.empty[stage], kMultiplying * kCluster);
    }
    barrier_init(&shared.tile_full, kMultiplying);
    barrier_init(&shared.tile_empty, kFinishing);
    fence_barrier_init();
  }
  cluster_sync();
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (group == 0 || group == 3) {
    give_registers<104>();
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (warp == kLoader) {
      if (threadIdx.x % kWarp == 0) load_tiles<kByColumns>(problem, left, right, shared, rank);
#ifndef HOPPER_NOEPI
    } else if (warp < kLoader || warp <= kLoader + 2) {
      const int thread = static_cast<int>(threadIdx.x) - (group == 3 ? (kLoader + 1 - 4) * kWarp : 0);
      finish_tiles<T, kEpilogue>(problem, shared, rank, thread);
#endif
    }
  } else {
    take_registers<152>();
    multiply_tiles<T, kByColumns>(problem, shared);
  }
  __syncwarp();
  cluster_sync();  // the other block may still write into this one's memory
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cuda::check(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status),
        "cudaGetDriverEntryPointByVersion");
    if (status != cudaDriverEntryPointSuccess)
      throw ApiError("CUDA", "cuTensorMapEncodeTiled", static_cast<int>(status), "not in this driver");
    return reinterpret_cast<EncodeTiled>(found);
  }();
  return function;
}

/// Boxes of [box_outer, 64] elements of a row-major matrix [outer, inner].
CUtensorMap tensor_map(const void* matrix, Element element, std::int64_t outer, std::int64_t inner,
                       int box_outer) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(outer)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(inner * 2)};
  const cuuint32_t box[] = {kTileInner, static_cast<cuuint32_t>(box_outer)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult status = encode_tiled()(
      &map, element == Element::float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      2, const_cast<void*>(matrix), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw ApiError("CUDA", "cuTensorMapEncodeTiled", static_cast<int>(status), "refused");
  return map;
}

template <class T, bool kByColumns, ProductEpilogue kEpilogue>
void launch(const HopperProduct& a, cudaStream_t stream) {
  const CUtensorMap left = tensor_map(a.left, a.element, a.rows, a.inner, kTileRows);
  const CUtensorMap right = kByColumns
                                ? tensor_map(a.right, a.element, a.columns, a.inner, kTileColumns / kCluster)
                                : tensor_map(a.right, a.element, a.inner, a.columns, kTileInner / kCluster);
  Problem problem{static_cast<int>(a.rows),
                  static_cast<int>(a.columns),
                  static_cast<int>(a.inner),
                  0,
                  0,
                  0,
                  a.bias,
                  a.auxiliary,
                  a.result,
                  a.partial};
  problem.column_tiles = static_cast<int>((a.columns + kTileColumns - 1) / kTileColumns);
  problem.row_pairs = static_cast<int>((a.rows + kCluster * kTileRows - 1) / (kCluster * kTileRows));
  const auto most = std::max(std::int64_t{1}, kCachedBytes / (kTileColumns * a.inner * 2));
  const auto blocks = (problem.column_tiles + most - 1) / most;
  problem.block = static_cast<int>((problem.column_tiles + blocks - 1) / blocks);
  constexpr int kBytes = sizeof(Shared);
  static const int multiprocessors = [] {
    cuda::check(cudaFuncSetAttribute(product<T, kByColumns, kEpilogue>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                "cudaFuncSetAttribute");
    return device_attribute(cudaDevAttrMultiProcessorCount);
  }();
  const int clusters = std::min(problem.row_pairs * problem.column_tiles, multiprocessors / kCluster);
  product<T, kByColumns, kEpilogue><<<clusters * kCluster, kThreads, kBytes, stream>>>(left, right, problem);
  cuda::check(cudaGetLastError(), "hopper_product");
}

template <class T>
void launch_epilogue(const HopperProduct& a, cudaStream_t stream) {
  switch (a.epilogue) {
    case ProductEpilogue::bias:
      return launch<T, true, ProductEpilogue::bias>(a, stream);
    case ProductEpilogue::bias_gelu:
      return launch<T, true, ProductEpilogue::bias_gelu>(a, stream);
    case ProductEpilogue::gelu_slope_sums:
      return launch<T, false, ProductEpilogue::gelu_slope_sums>(a, stream);
  }
}

}  // namespace

std::int64_t hopper_parts(std::int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

void hopper_product(const HopperProduct& product, cudaStream_t stream) {
  if (product.rows == 0 || product.columns == 0) return;
  if (product.element == Element::float16) return launch_epilogue<__half>(product, stream);
  launch_epilogue<__nv_bfloat16>(product, stream);
}

}  // namespace lockstep::ops::cuda_kernels
