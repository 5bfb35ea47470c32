#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

/// CUDA kernels of the fused ops, on raw device memory; each is checked against its ATen reference in
/// tests/ops.
namespace lockstep::ops {

enum class Element { float32, float16, bfloat16, uint8 };

/// A contiguous matrix [rows, columns].
struct Matrix {
  const void* data;
  Element element;
  std::int64_t rows;
  std::int64_t columns;
};

namespace cuda_kernels {

/// What the backward pass needs of a row: log sum exp is largest + log_sum. Apart, since their sum would lose
/// the small one's digits where logits are large.
struct RowSum {
  float largest;
  float log_sum;  ///< log of the sum of exp(x - largest)
};

/// losses[r] = log sum exp of row r - logits[r, targets[r]]; *sum = their sum in a fixed order.
void cross_entropy_forward(const Matrix& logits, const std::int64_t* targets, RowSum* row_sums, float* losses,
                           float* sum, cudaStream_t stream);

/// result[r, c] = (softmax(logits)[r, c] - [c == targets[r]]) * *scale, in the type of the logits.
void cross_entropy_backward(const Matrix& logits, const std::int64_t* targets, const RowSum* row_sums,
                            const float* scale, void* result, cudaStream_t stream);

/// out[r, ch, i] = in[r, ch, i] * scale[ch] + shift[ch] for in [rows, channels, inner].
void normalise(const Matrix& in, std::int64_t inner, const float* scale, const float* shift,
               std::int64_t channels, void* out, Element out_element, cudaStream_t stream);

/// Row blocks that column_sums() cuts `rows` rows into; a function of nothing else, so that sums have one order.
std::int64_t row_blocks(std::int64_t rows);
/// sums[c] = sum over rows of matrix[r, c], or added to it, in the type of the matrix. `partial` has room for
/// row_blocks(rows) * columns floats.
void column_sums(const Matrix& matrix, float* partial, void* sums, bool adds, cudaStream_t stream);

}  // namespace cuda_kernels

}  // namespace lockstep::ops
