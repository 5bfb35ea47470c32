#include <algorithm>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/error.hpp"
#include "precision/kernels.hpp"

namespace lockstep::precision::cuda_kernels {

namespace {

constexpr int kThreads = 256;

__global__ void begin_backward_kernel(StepState* state, const float* loss_sum, float global_count) {
  if (loss_sum != nullptr) state->loss_sum += *loss_sum;
  state->global_count = global_count;
  state->gradient_seed = state->loss_scale / global_count;
}

__global__ void end_step_kernel(StepState* state, ScaleRule rule) {
  precision::end_step(*state, rule);
}

/// Sum over the block in a fixed order (a tree), valid in thread 0.
__device__ double block_sum(double value) {
  __shared__ double warps[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  __syncthreads();  // the previous call's readers are done
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kThreads / 32; ++warp) sum += warps[warp];
  }
  return sum;
}

struct Seen {
  double squares = 0;
  bool nonfinite = false;
  __device__ void add(float gradient) {
    nonfinite |= !isfinite(gradient);
    squares += static_cast<double>(gradient) * gradient;
  }
};

/// Eight 2-byte values a load: every flat range starts on 16 bytes and is a multiple of 8 elements long.
template <class Low2>
__device__ void scan_low(const void* low, std::int64_t count, Seen& seen) {
  const auto* packs = static_cast<const uint4*>(low);
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count / 8;
       i += std::int64_t{gridDim.x} * kThreads) {
    const uint4 pack = packs[i];
    const auto* pairs = reinterpret_cast<const Low2*>(&pack);
    // Eight squares of halves stay far inside float, at most 8 * 65504^2; those of bfloat16 need the range of
    // double.
    std::conditional_t<std::is_same_v<Low2, __half2>, float, double> squares = 0;
    for (int pair = 0; pair < 4; ++pair) {
      float2 wide;
      if constexpr (std::is_same_v<Low2, __half2>) {
        wide = __half22float2(pairs[pair]);
      } else {
        wide = __bfloat1622float2(pairs[pair]);
      }
      seen.nonfinite |= !(isfinite(wide.x) && isfinite(wide.y));
      squares +=
          static_cast<decltype(squares)>(wide.x) * wide.x + static_cast<decltype(squares)>(wide.y) * wide.y;
    }
    seen.squares += squares;
  }
}

__global__ void __launch_bounds__(kThreads) scan_kernel(InspectArguments arguments) {
  Seen seen;
  const GradientView& view = arguments.gradients;
  if (view.low_type == LowType::half) scan_low<__half2>(view.low, view.low_count, seen);
  if (view.low_type == LowType::bfloat16) scan_low<__nv_bfloat162>(view.low, view.low_count, seen);
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < view.full_count;
       i += std::int64_t{gridDim.x} * kThreads) {
    seen.add(view.full[i]);
  }
  const double sum = block_sum(seen.squares);
  const int nonfinite = __syncthreads_or(seen.nonfinite);
  if (threadIdx.x == 0) {
    arguments.partial_sums[blockIdx.x] = sum;
    arguments.partial_flags[blockIdx.x] = nonfinite;
  }
}

__global__ void __launch_bounds__(kThreads) conclude_kernel(InspectArguments arguments, int blocks) {
  double squares = 0;
  int flag = 0;
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    squares += arguments.partial_sums[i];
    flag |= arguments.partial_flags[i];
  }
  const double sum = block_sum(squares);
  const int nonfinite = __syncthreads_or(flag);
  if (threadIdx.x == 0) {
    conclude_gradients(*arguments.state, sqrt(sum), nonfinite != 0, arguments.clip_norm,
                       arguments.learning_rates, arguments.table_size);
  }
}

template <class Low>
__global__ void round_kernel(Low* weights, const float* masters, std::int64_t count) {
  const std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  if constexpr (std::is_same_v<Low, __half>) {
    weights[i] = __float2half_rn(masters[i]);
  } else {
    weights[i] = __float2bfloat16_rn(masters[i]);
  }
}

int blocks_for(std::int64_t elements) {
  return static_cast<int>(std::max<std::int64_t>(1, (elements + kThreads - 1) / kThreads));
}

void launched(const char* kernel) {
  cuda::check(cudaGetLastError(), kernel);
}

}  // namespace

void begin_backward(StepState* state, const float* loss_sum, float global_count, cudaStream_t stream) {
  begin_backward_kernel<<<1, 1, 0, stream>>>(state, loss_sum, global_count);
  launched("begin_backward_kernel");
}

void inspect(const InspectArguments& arguments, cudaStream_t stream) {
  const auto& view = arguments.gradients;
  const int blocks = std::min(kPartials, blocks_for(view.low_count / 8 + view.full_count));
  scan_kernel<<<blocks, kThreads, 0, stream>>>(arguments);
  launched("scan_kernel");
  conclude_kernel<<<1, kThreads, 0, stream>>>(arguments, blocks);
  launched("conclude_kernel");
}

void end_step(StepState* state, const ScaleRule& rule, cudaStream_t stream) {
  end_step_kernel<<<1, 1, 0, stream>>>(state, rule);
  launched("end_step_kernel");
}

void round_weights(void* weights, LowType type, const float* masters, std::int64_t count,
                   cudaStream_t stream) {
  if (count == 0) return;
  if (type == LowType::half) {
    round_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<__half*>(weights), masters, count);
  } else {
    round_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(weights), masters,
                                                             count);
  }
  launched("round_kernel");
}

}  // namespace lockstep::precision::cuda_kernels
