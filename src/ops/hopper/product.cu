#include <algorithm>
#include <cstdint>

#include "cuda/error.hpp"
#include "ops/hopper/finish.cuh"
#include "ops/hopper/product.hpp"
#include "ops/hopper/tensor_map.cuh"

/// A matrix product for Hopper whose epilogue runs beside it: while the tensor cores work at one tile, six
/// warps of their own take the last tile's sums from shared memory, rounded, and do with them what the
/// epilogue says.
///
/// Two neighbouring blocks, a cluster, take two tiles with the same columns; each loads half of the right
/// matrix's part and both receive it. In each block one thread loads, eight warps multiply, six finish.
namespace lockstep::ops::cuda_kernels {

namespace {

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

/// Each warpgroup multiplies half of the tile's rows, and hands its sums over, rounded.
template <class T, bool kByColumns>
__device__ void multiply_tiles(const Problem& problem, Shared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp - kFirstMultiplying;
  const int group = warp / 4;
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
    keep_after(sums);
    if (lane < kCluster) arrive_at(&shared.empty[last], lane);

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
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp >= kFirstMultiplying && warp < kLoader) {
    take_registers<kMultiplierRegisters>();
    multiply_tiles<T, kByColumns>(problem, shared);
  } else {
    give_registers<kOtherRegisters>();
    const int finishing = warp < kLoader ? warp : warp - kLoader - 1 + kFirstMultiplying;
    if (warp == kLoader) {
      if (threadIdx.x % kWarp == 0) load_tiles<kByColumns>(problem, left, right, shared, rank);
    } else if (finishing < kFinishing) {
      finish_tiles<T, kEpilogue>(problem, shared, rank,
                                 finishing * kWarp + static_cast<int>(threadIdx.x) % kWarp);
    }
  }
  __syncwarp();
  cluster_sync();  // the other block may still write into this one's memory
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
    case ProductEpilogue::factor_sums:
      return launch<T, false, ProductEpilogue::factor_sums>(a, stream);
  }
}

}  // namespace

void hopper_product(const HopperProduct& product, cudaStream_t stream) {
  if (product.rows == 0 || product.columns == 0) return;
  if (product.element == Element::float16) return launch_epilogue<__half>(product, stream);
  launch_epilogue<__nv_bfloat16>(product, stream);
}

}  // namespace lockstep::ops::cuda_kernels
