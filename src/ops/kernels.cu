#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/error.hpp"
#include "ops/kernels.hpp"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kWarp = 32;
constexpr int kRowsPerBlock = 4;  // one warp a row
constexpr int kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;

__device__ float to_float(float value) {
  return value;
}
__device__ float to_float(__half value) {
  return __half2float(value);
}
__device__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ float to_float(std::uint8_t value) {
  return static_cast<float>(value);
}

template <class T>
__device__ T from_float(float value);
template <>
__device__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

/// Largest value and sum of exp(x - largest), merged as one pass goes (Milakov and Gimelshein 2018).
struct Running {
  float largest = -INFINITY;
  float sum = 0;
  __device__ void add(float x) {
    const float next = fmaxf(largest, x);
    if (next == -INFINITY) return;
    sum = sum * __expf(largest - next) + __expf(x - next);
    largest = next;
  }
  __device__ void merge(float other_largest, float other_sum) {
    const float next = fmaxf(largest, other_largest);
    if (next == -INFINITY) return;
    sum = sum * __expf(largest - next) + other_sum * __expf(other_largest - next);
    largest = next;
  }
};

template <class T>
__global__ void row_losses(const T* logits, std::int64_t rows, std::int64_t classes,
                           const std::int64_t* targets, RowSum* row_sums, float* losses) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (row >= rows) return;
  const T* const x = logits + row * classes;
  Running running;
  bool nan = false;
  for (std::int64_t c = lane; c < classes; c += kWarp) {
    const float value = to_float(x[c]);
    nan |= isnan(value);  // fmaxf would drop it
    running.add(value);
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    running.merge(__shfl_xor_sync(kAll, running.largest, offset), __shfl_xor_sync(kAll, running.sum, offset));
  }
  nan = __any_sync(kAll, nan);
  if (lane != 0) return;
  const std::int64_t target = targets[row];
  const bool inside = target >= 0 && target < classes;
  const float log_rest = nan ? NAN : logf(running.sum);
  row_sums[row] = {running.largest, inside ? log_rest : NAN};  // so that the step is skipped, not applied
  // The largest logit is taken off first: beside it the logarithm may have no digit left.
  losses[row] = inside ? log_rest - (to_float(x[target]) - running.largest) : NAN;
}

/// One block adds all rows in a fixed order.
__global__ void sum_rows(const float* losses, std::int64_t rows, float* sum) {
  __shared__ float parts[kThreads];
  float mine = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) mine += losses[row];
  parts[threadIdx.x] = mine;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *sum = parts[0];
}

template <class T>
__global__ void row_gradients(const T* logits, std::int64_t rows, std::int64_t classes,
                              const std::int64_t* targets, const RowSum* row_sums, const float* scale,
                              T* result) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * classes) return;
  const std::int64_t row = i / classes;
  const float probability = __expf(to_float(logits[i]) - row_sums[row].largest - row_sums[row].log_sum);
  const float picked = i - row * classes == targets[row] ? 1.0f : 0.0f;
  result[i] = from_float<T>((probability - picked) * *scale);
}

template <class In, class Out>
__global__ void normalise_kernel(const In* in, std::int64_t count, std::int64_t inner, std::int64_t channels,
                                 const float* scale, const float* shift, Out* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t channel = i / inner % channels;
  out[i] = from_float<Out>(fmaf(to_float(in[i]), scale[channel], shift[channel]));
}

unsigned blocks_for(std::int64_t elements, int per_block) {
  return static_cast<unsigned>((elements + per_block - 1) / per_block);
}

/// Calls `body` with a null pointer of the element's type.
template <class Body>
void with_floating(Element element, Body body) {
  if (element == Element::float32) return body(static_cast<float*>(nullptr));
  if (element == Element::float16) return body(static_cast<__half*>(nullptr));
  return body(static_cast<__nv_bfloat16*>(nullptr));
}

}  // namespace

void cross_entropy_forward(const Matrix& logits, const std::int64_t* targets, RowSum* row_sums, float* losses,
                           float* sum, cudaStream_t stream) {
  if (logits.rows > 0) {
    with_floating(logits.element, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      row_losses<T><<<blocks_for(logits.rows, kRowsPerBlock), kRowsPerBlock * kWarp, 0, stream>>>(
          static_cast<const T*>(logits.data), logits.rows, logits.columns, targets, row_sums, losses);
    });
  }
  sum_rows<<<1, kThreads, 0, stream>>>(losses, logits.rows, sum);
  cuda::check(cudaGetLastError(), "cross_entropy_forward");
}

void cross_entropy_backward(const Matrix& logits, const std::int64_t* targets, const RowSum* row_sums,
                            const float* scale, void* result, cudaStream_t stream) {
  if (logits.rows == 0) return;
  with_floating(logits.element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    row_gradients<T><<<blocks_for(logits.rows * logits.columns, kThreads), kThreads, 0, stream>>>(
        static_cast<const T*>(logits.data), logits.rows, logits.columns, targets, row_sums, scale,
        static_cast<T*>(result));
  });
  cuda::check(cudaGetLastError(), "cross_entropy_backward");
}

void normalise(const Matrix& in, std::int64_t inner, const float* scale, const float* shift,
               std::int64_t channels, void* out, Element out_element, cudaStream_t stream) {
  const std::int64_t count = in.rows * in.columns;
  with_floating(out_element, [&](auto* type) {
    using Out = std::remove_pointer_t<decltype(type)>;
    const unsigned blocks = blocks_for(count, kThreads);
    if (in.element == Element::uint8) {
      normalise_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const std::uint8_t*>(in.data), count,
                                                        inner, channels, scale, shift,
                                                        static_cast<Out*>(out));
    } else {
      normalise_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const float*>(in.data), count, inner,
                                                        channels, scale, shift, static_cast<Out*>(out));
    }
  });
  cuda::check(cudaGetLastError(), "normalise");
}

}  // namespace lockstep::ops::cuda_kernels
