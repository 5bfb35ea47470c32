#include "cuda/error.hpp"
#include "ops/cross_entropy.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kRowsPerBlock = 4;  // one warp a row
constexpr int kSumThreads = 1024;

template <class T, int N>
__global__ void row_losses(const T* logits, std::int64_t rows, std::int64_t columns, std::int64_t classes,
                           const std::int64_t* targets, RowSum* row_sums, float* losses) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (row >= rows) return;
  const T* const x = logits + row * columns;
  Running running;
#pragma unroll 4
  for (std::int64_t p = lane; p < columns / N; p += kWarp) {
    float values[N];
    unpack(load<N>(x, p), p * N, classes, values);
    running.add(values);
  }
  running.merge_warp();
  if (lane != 0) return;
  const std::int64_t target = targets[row];
  const bool inside = target >= 0 && target < classes;
  // NaN so that the step is skipped, not applied.
  row_sums[row] = {running.base, inside ? log2f(running.sum) : NAN};
  losses[row] = loss_of(running, inside ? to_float(x[target]) : NAN);
}

template <class T, int N>
__global__ void row_gradients(const T* logits, std::int64_t rows, std::int64_t columns, std::int64_t classes,
                              const std::int64_t* targets, const RowSum* row_sums, const float* scale,
                              T* result) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  const T* const x = logits + row * columns;
  const std::int64_t target = targets[row];
  const RowSum sum = row_sums[row];
  const float factor = power_of_two(-sum.log_sum) * *scale;
#pragma unroll 4
  for (std::int64_t p = threadIdx.x % kWarp; p < columns / N; p += kWarp) {
    float values[N];
    unpack(load<N>(x, p), p * N, classes, values);
    store(result + row * columns, p,
          gradient_pack<T, N>(values, p * N, classes, target, sum.base, factor, *scale));
  }
}

/// One block adds all values in a fixed order.
__global__ void sum_values(const float* values, std::int64_t count, float* sum) {
  __shared__ float parts[kSumThreads / kWarp];
  float mine = 0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < count; i += kSumThreads) mine += values[i];
  mine = block_sum<kSumThreads>(mine, parts);
  if (threadIdx.x == 0) *sum = mine;
}

/// Calls `body` with the element's type and the elements of an access as a constant.
template <class Body>
void with_access(const Matrix& matrix, const void* other, Body body) {
  with_floating(matrix.element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (is_aligned(matrix.data) && is_aligned(other) && matrix.columns % kWide<T> == 0) {
      body(type, std::integral_constant<int, kWide<T>>());
    } else {
      body(type, std::integral_constant<int, 1>());
    }
  });
}

}  // namespace

void cross_entropy_forward(const Matrix& logits, std::int64_t classes, const std::int64_t* targets,
                           RowSum* row_sums, float* losses, float* sum, cudaStream_t stream) {
  if (logits.rows > 0) {
    with_access(logits, nullptr, [&](auto* type, auto wide) {
      using T = std::remove_pointer_t<decltype(type)>;
      row_losses<T, decltype(wide)::value>
          <<<blocks_for(logits.rows, kRowsPerBlock), kRowsPerBlock * kWarp, 0, stream>>>(
              static_cast<const T*>(logits.data), logits.rows, logits.columns, classes, targets, row_sums,
              losses);
    });
  }
  sum_floats(losses, logits.rows, sum, stream);
  cuda::check(cudaGetLastError(), "cross_entropy_forward");
}

void cross_entropy_backward(const Matrix& logits, std::int64_t classes, const std::int64_t* targets,
                            const RowSum* row_sums, const float* scale, void* result, cudaStream_t stream) {
  if (logits.rows == 0) return;
  with_access(logits, result, [&](auto* type, auto wide) {
    using T = std::remove_pointer_t<decltype(type)>;
    row_gradients<T, decltype(wide)::value>
        <<<blocks_for(logits.rows, kRowsPerBlock), kRowsPerBlock * kWarp, 0, stream>>>(
            static_cast<const T*>(logits.data), logits.rows, logits.columns, classes, targets, row_sums,
            scale, static_cast<T*>(result));
  });
  cuda::check(cudaGetLastError(), "cross_entropy_backward");
}

void sum_floats(const float* values, std::int64_t count, float* sum, cudaStream_t stream) {
  sum_values<<<1, kSumThreads, 0, stream>>>(values, count, sum);
  cuda::check(cudaGetLastError(), "sum_floats");
}

}  // namespace lockstep::ops::cuda_kernels
