#include <cstdint>

#include "cuda/error.hpp"
#include "ops/device.cuh"
#include "ops/hopper/instructions.cuh"
#include "ops/hopper/tensor_map.cuh"
#include "ops/hopper/weight_gradient.hpp"
#include "ops/hopper/work_split.hpp"

/// The gradient of a linear layer's weight on Hopper, with that of its bias from the same reading of d_out.
///
/// Few tiles with long sums: two neighbouring blocks, a cluster, take two tiles one below the other, 256 x
/// 256 together; each loads half of x's part and both receive it. The sums are cut along the rows of d_out
/// and x (work_split.hpp), and a second kernel adds the pieces. In each block one thread loads, eight warps
/// multiply, and two add up columns of d_out as it passes through shared memory.
namespace lockstep::ops::cuda_kernels {

namespace {

using namespace hopper;

constexpr int kCluster = 2;
constexpr int kTileOut = 128;  // of a block
constexpr int kTileIn = 256;
constexpr int kPairOut = kCluster * kTileOut;
constexpr int kStepRows = 64;
constexpr int kBoxBytes = kStepRows * kBoxInner * 2;  // 64 columns
constexpr int kLeftBoxes = kTileOut / kBoxInner, kRightBoxes = kTileIn / kBoxInner;
constexpr int kStages = 4;
using Stage = RingStage<kStages>;
constexpr int kWarpgroup = 128;
// Warp 0 loads, 1 and 2 add up columns, 4 to 11 multiply.
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kMultiplying = 8;
constexpr int kAdding = 2;
constexpr int kMultiplierRegisters = 224, kOtherRegisters = 56;  // of a thread
static_assert(2 * kMultiplierRegisters + kOtherRegisters <= 65536 / kWarpgroup);
constexpr int kSums = kTileIn / 2;  // of a thread that multiplies
constexpr int kPack = 8;            // elements of 16 bytes
constexpr int kAddThreads = 256;
constexpr int kSwizzleBytes = 1024;
constexpr std::int64_t kSlotFloats = kPairOut * kTileIn;
constexpr int kSlotColumns = kAdding * kPairOut;

struct alignas(kSwizzleBytes) Shared {
  unsigned char left[kStages][kLeftBoxes][kBoxBytes];
  unsigned char right[kStages][kRightBoxes][kBoxBytes];
  std::uint64_t full[kStages], empty[kStages];
};
static_assert(sizeof(Shared) <= 227 * 1024);

struct Problem {
  WorkSplit split;
  int out, in, in_tiles;
  float* partial;  // [slot, kSlotFloats]
  float* columns;  // [slot, block, adding warp, kTileOut]: sums over rows of d_out
};

/// body(segment) for each segment of this cluster.
template <class Body>
__device__ void for_segments(const Problem& problem, Body body) {
  const int worker = static_cast<int>(blockIdx.x) / kCluster;
  const std::int64_t work = steps_of(problem.split, worker);
  for (std::int64_t done = 0; done < work;) {
    const Segment segment = segment_of(problem.split, worker, done);
    body(segment);
    done += segment.count;
  }
}

__device__ void load_steps(const Problem& problem, const CUtensorMap& left, const CUtensorMap& right,
                           Shared& shared, int rank) {
  constexpr std::uint16_t kBoth = (1 << kCluster) - 1;
  constexpr int kMine = kRightBoxes / kCluster;
  Stage stage;
  for_segments(problem, [&](const Segment& segment) {
    const int out = segment.tile / problem.in_tiles * kPairOut + rank * kTileOut;
    const int in = segment.tile % problem.in_tiles * kTileIn;
    for (int step = 0; step < segment.count; ++step, stage.advance()) {
      const int row = (segment.first + step) * kStepRows;
      wait(&shared.empty[stage.index], stage.round ^ 1);
      std::uint64_t* const full = &shared.full[stage.index];
      arrive_expecting(full, (kLeftBoxes + kRightBoxes) * kBoxBytes);
#pragma unroll
      for (int box = 0; box < kLeftBoxes; ++box)
        copy_box(shared.left[stage.index][box], left, out + box * kBoxInner, row, full);
#pragma unroll
      for (int box = rank * kMine; box < (rank + 1) * kMine; ++box)
        copy_box_to(kBoth, shared.right[stage.index][box], right, in + box * kBoxInner, row, full);
    }
  });
}

/// Each warpgroup multiplies 64 of the tile's rows.
template <class T>
__device__ void multiply_steps(const Problem& problem, Shared& shared, int rank) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  const int lane = thread % kWarp;
  Stage stage;
  float sums[kSums];
  for_segments(problem, [&](const Segment& segment) {
    int last = 0;
    for (int step = 0; step < segment.count; ++step) {
      wait(&shared.full[stage.index], stage.round);
      products_begin();
      const unsigned char* const left = shared.left[stage.index][group];
      const unsigned char* const right = shared.right[stage.index][0];
#pragma unroll
      for (int part = 0; part < kStepRows / 16; ++part) {
        const std::uint64_t a = matrix_descriptor(left + part * (16 * 128), kBoxBytes, kSwizzleBytes);
        const std::uint64_t b = matrix_descriptor(right + part * (16 * 128), kBoxBytes, kSwizzleBytes);
        multiply_columns_add<T>(sums, a, b, step > 0 || part > 0);
      }
      products_commit();
      if (step > 0) {
        products_wait<1>();
        if (lane < kCluster) arrive_at(&shared.empty[last], lane);
      }
      last = stage.index;
      stage.advance();
    }
    products_wait<0>();
    keep_after(sums);
    if (lane < kCluster) arrive_at(&shared.empty[last], lane);
    float* const to = problem.partial + segment.slot * kSlotFloats +
                      std::int64_t{rank * kCluster + group} * (kSums * kWarpgroup) + thread * 4;
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i)
      *reinterpret_cast<float4*>(to + i * (4 * kWarpgroup)) =
          make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
  });
}

/// Sums over rows of d_out's part. The clusters that have the same columns of d_out share each step's rows,
/// so that at any time little is read beside the products, which nearly fill the shared memory's bandwidth.
template <class T>
__device__ void add_columns(const Problem& problem, Shared& shared, int rank) {
  constexpr int kPacks = kTileOut / kPack;
  constexpr int kRows = kAdding * kWarp / kPacks;  // at once
  const int thread = static_cast<int>(threadIdx.x) - kWarp;
  const int pack = thread % kPacks;  // the lane's 8 columns
  Stage stage;
  for_segments(problem, [&](const Segment& segment) {
    float sums[kPack] = {};
    const int begin = segment.tile % problem.in_tiles * kRows + thread / kPacks;
    for (int step = 0; step < segment.count; ++step, stage.advance()) {
      wait(&shared.full[stage.index], stage.round);
      const unsigned char* const box = shared.left[stage.index][pack / 8];
#pragma unroll 4
      for (int row = begin; row < kStepRows; row += problem.in_tiles * kRows) {
        const auto values =
            *reinterpret_cast<const Pack<T, kPack>*>(box + row * 128 + (pack % 8 ^ row % 8) * 16);
#pragma unroll
        for (int k = 0; k < kPack; ++k) sums[k] += to_float(values.at[k]);
      }
      __syncwarp();
      if (threadIdx.x % kWarp == 0) arrive(&shared.empty[stage.index]);
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) sums[k] += __shfl_xor_sync(kAllLanes, sums[k], kPacks);
    if (threadIdx.x % kWarp < kPacks)
      store_floats(problem.columns + std::int64_t{segment.slot} * kSlotColumns +
                       (rank * kAdding + thread / kWarp) * kTileOut + pack * kPack,
                   sums);
    __syncwarp();
  });
}

template <class T, bool kWithColumns>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
             const Problem problem) {
  extern __shared__ __align__(kSwizzleBytes) unsigned char raw[];
  Shared& shared = *reinterpret_cast<Shared*>(raw);
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    prefetch_map(left);
    prefetch_map(right);
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(&shared.full[stage], 1);
      barrier_init(&shared.empty[stage], kMultiplying * kCluster + (kWithColumns ? kAdding : 0));
    }
    fence_barrier_init();
  }
  cluster_sync();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp >= kWarpgroup / kWarp) {
    take_registers<kMultiplierRegisters>();
    multiply_steps<T>(problem, shared, rank);
  } else {
    give_registers<kOtherRegisters>();
    if (warp == 0) {
      if (threadIdx.x == 0) load_steps(problem, left, right, shared, rank);
    } else if (kWithColumns && warp <= kAdding) {
      add_columns<T>(problem, shared, rank);
    }
  }
  __syncwarp();
  cluster_sync();  // the other block may still write into this one's memory
}

/// The bias's gradient: kWarp columns of d_out a block, a warp every eighth of their slots.
template <class T>
__device__ void add_bias_slots(const Problem& problem, T* d_bias, bool adds) {
  constexpr int kWarps = kAddThreads / kWarp;
  __shared__ float parts[kWarps][kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int begin = static_cast<int>(blockIdx.x) * kWarp; begin < problem.out;
       begin += static_cast<int>(gridDim.x) * kWarp) {
    const int pair = begin / kPairOut;
    const int column = begin % kPairOut + lane;
    const float* const at = problem.columns + column / kTileOut * (kAdding * kTileOut) + column % kTileOut;
    float sum = 0;
    int number = 0;
    for (int tile = pair * problem.in_tiles; tile < (pair + 1) * problem.in_tiles; ++tile) {
      const TileSlots slots = slots_of(problem.split, tile);
      for (int i = 0; i < slots.count; ++i, ++number) {
        if (number % kWarps != warp) continue;
        const float* const slot = at + std::int64_t{slots[i]} * kSlotColumns;
#pragma unroll
        for (int part = 0; part < kAdding; ++part) sum += slot[part * kTileOut];
      }
    }
    __syncthreads();
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || begin + lane >= problem.out) continue;
    sum = adds ? to_float(d_bias[begin + lane]) : 0.0f;
    for (int i = 0; i < kWarps; ++i) sum += parts[i][lane];
    d_bias[begin + lane] = from_float<T>(sum);
  }
}

/// Adds the slots of each tile. Where d_bias is wanted, row 0 of the grid is its.
template <class T>
__global__ void __launch_bounds__(kAddThreads)
    add_slots(const Problem problem, T* d_weight, bool adds, T* d_bias, bool adds_bias) {
  int tile = static_cast<int>(blockIdx.y);
  if (d_bias != nullptr && tile-- == 0) return add_bias_slots(problem, d_bias, adds_bias);
  const int place =
      static_cast<int>(blockIdx.x) * kAddThreads + static_cast<int>(threadIdx.x);  // of four sums
  const int thread = place % kWarpgroup;
  const int pack = place / kWarpgroup % (kSums / 4);
  const int quarter = place / (kWarpgroup * (kSums / 4));
  const int row =
      tile / problem.in_tiles * kPairOut + quarter * 64 + thread / kWarp * 16 + thread % kWarp / 4;
  const int column = tile % problem.in_tiles * kTileIn + pack * 8 + thread % 4 * 2;
  if (column >= problem.in || row >= problem.out) return;
  const TileSlots slots = slots_of(problem.split, tile);
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int i = 0; i < slots.count; ++i) {
    const float4 more = reinterpret_cast<const float4*>(problem.partial + slots[i] * kSlotFloats)[place];
    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
  }
  const auto finish = [&](int at_row, float a, float b) {
    if (at_row >= problem.out) return;
    T* const to = d_weight + std::int64_t{at_row} * problem.in + column;
    Pack<T, 2> two = adds ? load<2>(to, 0) : Pack<T, 2>{};
    two.at[0] = from_float<T>(adds ? to_float(two.at[0]) + a : a);
    two.at[1] = from_float<T>(adds ? to_float(two.at[1]) + b : b);
    store(to, 0, two);
  };
  finish(row, sum.x, sum.y);
  finish(row + 8, sum.z, sum.w);
}

Problem describe(std::int64_t rows, std::int64_t out, std::int64_t in) {
  Problem problem{};
  problem.out = static_cast<int>(out);
  problem.in = static_cast<int>(in);
  problem.in_tiles = static_cast<int>((in + kTileIn - 1) / kTileIn);
  const int tiles = static_cast<int>((out + kPairOut - 1) / kPairOut) * problem.in_tiles;
  static const int workers = device_attribute(cudaDevAttrMultiProcessorCount) / kCluster;
  problem.split = split_work(tiles, static_cast<int>((rows + kStepRows - 1) / kStepRows), workers);
  return problem;
}

template <class T, bool kWithColumns>
void launch_multiply(const HopperWeightGradient& a, const Problem& problem, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared);
  static const bool ready = [] {
    cuda::check(
        cudaFuncSetAttribute(multiply<T, kWithColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "cudaFuncSetAttribute");
    return true;
  }();
  static_cast<void>(ready);
  const CUtensorMap left = tensor_map(a.d_out, a.element, a.rows, a.out, kStepRows);
  const CUtensorMap right = tensor_map(a.x, a.element, a.rows, a.in, kStepRows);
  multiply<T, kWithColumns>
      <<<workers_of(problem.split) * kCluster, kThreads, kBytes, stream>>>(left, right, problem);
}

template <class T>
void launch(const HopperWeightGradient& a, cudaStream_t stream) {
  Problem problem = describe(a.rows, a.out, a.in);
  problem.partial = a.work;
  problem.columns = a.work + slot_count(problem.split) * kSlotFloats;
  const bool bias = a.d_bias != nullptr;
  if (bias)
    launch_multiply<T, true>(a, problem, stream);
  else
    launch_multiply<T, false>(a, problem, stream);
  cuda::check(cudaGetLastError(), "hopper_weight_gradient");
  const dim3 grid(static_cast<unsigned>(kSlotFloats / 4 / kAddThreads),
                  static_cast<unsigned>(problem.split.tiles + (bias ? 1 : 0)));
  add_slots<T><<<grid, kAddThreads, 0, stream>>>(problem, static_cast<T*>(a.d_weight), a.adds,
                                                 static_cast<T*>(a.d_bias), a.adds_bias);
  cuda::check(cudaGetLastError(), "hopper_weight_gradient");
}

}  // namespace

std::int64_t hopper_weight_gradient_work(std::int64_t rows, std::int64_t out, std::int64_t in) {
  return slot_count(describe(rows, out, in).split) * (kSlotFloats + kSlotColumns);
}

void hopper_weight_gradient(const HopperWeightGradient& gradient, cudaStream_t stream) {
  if (gradient.element == Element::float16) return launch<__half>(gradient, stream);
  launch<__nv_bfloat16>(gradient, stream);
}

}  // namespace lockstep::ops::cuda_kernels
