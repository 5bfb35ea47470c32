#include <algorithm>

#include "cuda/error.hpp"
#include "ops/cross_entropy.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

/// 20 warps: two blocks fit a multiprocessor beside two rows of 50,304 halves (201 of 228 KB), and such a row
/// is 9.8 packs a thread, so that the last round is nearly full.
constexpr int kThreads = 640;
constexpr int kWarps = kThreads / kWarp;
constexpr int kStages = 4;  // parts of a row that are waited for one after another

/// Calls `body(pack)` for this thread's packs of one stage.
template <class Body>
__device__ void for_packs(int packs, int stage, Body body) {
  const int of_stage = (packs + kThreads * kStages - 1) / (kThreads * kStages) * kThreads;
  const int end = min(packs, (stage + 1) * of_stage);
#pragma unroll 4
  for (int p = stage * of_stage + static_cast<int>(threadIdx.x); p < end; p += kThreads) body(p);
}

/// Calls `body(stage)` for the stages, as constants.
template <class Body>
__device__ void for_stages(Body body) {
  static_assert(kStages == 4);
  body(std::integral_constant<int, 0>());
  body(std::integral_constant<int, 1>());
  body(std::integral_constant<int, 2>());
  body(std::integral_constant<int, 3>());
}

/// Every thread gets the block's result, merged in the order of lanes and warps.
__device__ Running merge_block(Running mine, Running* parts) {
  const int lane = threadIdx.x % kWarp;
  mine.merge_warp();
  __syncthreads();  // the parts of the row before may still be read
  if (lane == 0) parts[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Running all;
  if (lane < kWarps) all = parts[lane];
  all.merge_warp();
  return all;
}

/// A block takes rows one after another. With kOnChip a row lies in shared memory between its two readings; a
/// thread works on packs that it copied itself, so it may wait for them alone, and asks for the next row's
/// as soon as it has used one for the last time: loads go on while gradients are written. The order of sums
/// is that without kOnChip, which reads the row from global memory each time.
template <class T, int N, bool kOnChip, bool kWrite>
__global__ void __launch_bounds__(kThreads, 2)
    softmax_rows(T* logits, std::int64_t rows, std::int64_t columns, std::int64_t classes,
                 const std::int64_t* targets, const float* seed, float* losses) {
  extern __shared__ uint4 row_memory[];
  __shared__ Running parts[kWarps];
  T* const held = reinterpret_cast<T*>(row_memory);
  const int packs = static_cast<int>(columns / N);
  const int used = static_cast<int>(classes);
  const auto end_stage = [] {
    if constexpr (kOnChip) end_copies();
  };
  for (int stage = 0; kOnChip && stage < kStages; ++stage) {
    for_packs(packs, stage,
              [&](int p) { copy_16_bytes(held + p * N, logits + blockIdx.x * columns + p * N); });
    end_stage();
  }
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const x = logits + row * columns;
    T* const source = kOnChip ? held : x;
    const bool more = kOnChip && row + gridDim.x < rows;
    const auto replace = [&](int p) {
      if (more) copy_16_bytes(held + p * N, x + gridDim.x * columns + p * N);
    };
    const std::int64_t target = targets[row];
    const bool inside = target >= 0 && target < classes;
    // Read before merge_block's barrier, after which gradients overwrite it.
    const float picked = threadIdx.x == 0 && inside ? to_float(x[target]) : NAN;
    Running running;
    for_stages([&](auto stage) {
      if constexpr (kOnChip) wait_for_copies<kStages - 1 - decltype(stage)::value>();
      for_packs(packs, stage, [&](int p) {
        float values[N];
        unpack(load<N>(source, p), p * N, used, values);
        running.add(values);
        if constexpr (!kWrite) replace(p);
      });
      if constexpr (!kWrite) end_stage();
    });
    running = merge_block(running, parts);
    if (threadIdx.x == 0) losses[row] = loss_of(running, picked);
    if constexpr (!kWrite) continue;
    const float scale = *seed;
    const int place = inside ? static_cast<int>(target) : -1;
    const float factor = inside ? scale / running.sum : NAN;  // NaN so that the step is skipped
    for_stages([&](auto stage) {
      for_packs(packs, stage, [&](int p) {
        float values[N];
        unpack(load<N>(source, p), p * N, used, values);
        store(x, p, gradient_pack<T, N>(values, p * N, used, place, running.base, factor, scale));
        replace(p);
      });
      end_stage();
    });
  }
}

struct Rows {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t classes;
  const std::int64_t* targets;
  const float* seed;
  float* losses;
};

template <class T, bool kWrite>
void start_rows(T* data, const Rows& r, cudaStream_t stream) {
  constexpr int N = kWide<T>;
  const auto row_bytes = r.columns * static_cast<std::int64_t>(sizeof(T));
  const auto own_bytes = static_cast<std::int64_t>(kWarps * sizeof(Running));
  const bool wide = is_aligned(data) && r.columns % N == 0;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(r.rows, 0x7fffffff));
  if (wide && row_bytes + own_bytes <= device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) {
    const auto kernel = softmax_rows<T, N, true, kWrite>;
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(row_bytes)),
                "cudaFuncSetAttribute");
    const unsigned resident = 2 * static_cast<unsigned>(device_attribute(cudaDevAttrMultiProcessorCount));
    kernel<<<std::min(blocks, resident), kThreads, static_cast<std::size_t>(row_bytes), stream>>>(
        data, r.rows, r.columns, r.classes, r.targets, r.seed, r.losses);
  } else if (wide) {
    softmax_rows<T, N, false, kWrite>
        <<<blocks, kThreads, 0, stream>>>(data, r.rows, r.columns, r.classes, r.targets, r.seed, r.losses);
  } else {
    softmax_rows<T, 1, false, kWrite>
        <<<blocks, kThreads, 0, stream>>>(data, r.rows, r.columns, r.classes, r.targets, r.seed, r.losses);
  }
}

}  // namespace

void cross_entropy_rows(void* logits, Element element, std::int64_t rows, std::int64_t columns,
                        std::int64_t classes, const std::int64_t* targets, const float* seed, float* losses,
                        cudaStream_t stream) {
  if (rows == 0) return;
  const Rows all{rows, columns, classes, targets, seed, losses};
  with_floating(element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    auto* const data = static_cast<T*>(logits);
    if (seed != nullptr) {
      start_rows<T, true>(data, all, stream);
    } else {
      start_rows<T, false>(data, all, stream);
    }
  });
  cuda::check(cudaGetLastError(), "cross_entropy_rows");
}

}  // namespace lockstep::ops::cuda_kernels
