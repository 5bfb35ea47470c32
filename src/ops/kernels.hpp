#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

/// CUDA kernels of the fused ops, on raw device memory; each is checked against its ATen reference in
/// tests/ops. Each only enqueues on `stream` and can be captured; sums have a fixed order that depends on
/// sizes and types alone. Pointers that are not 16-byte aligned, and rows that are no multiple of 16 bytes,
/// are taken by slower kernels.
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

/// What the backward pass needs of a row, in powers of two: log2 sum exp is base + log_sum. Apart, since
/// their sum would lose the small one's digits where logits are large.
struct RowSum {
  float base;     ///< largest logit * log2 e
  float log_sum;  ///< log2 of the sum of 2^(x log2 e - base)
};

/// losses[r] = log sum exp of row r over its first `classes` columns - logits[r, targets[r]]; *sum = their
/// sum in a fixed order.
void cross_entropy_forward(const Matrix& logits, std::int64_t classes, const std::int64_t* targets,
                           RowSum* row_sums, float* losses, float* sum, cudaStream_t stream);

/// result[r, c] = (softmax(logits)[r, c] - [c == targets[r]]) * *scale, in the type of the logits; 0 from
/// column `classes` on.
void cross_entropy_backward(const Matrix& logits, std::int64_t classes, const std::int64_t* targets,
                            const RowSum* row_sums, const float* scale, void* result, cudaStream_t stream);

/// losses[r] as above, a block a row; where `seed` is not null, the logits become what cross_entropy_backward
/// gives with scale = seed.
void cross_entropy_rows(void* logits, Element element, std::int64_t rows, std::int64_t columns,
                        std::int64_t classes, const std::int64_t* targets, const float* seed, float* losses,
                        cudaStream_t stream);

/// *sum = the sum of `count` floats in a fixed order.
void sum_floats(const float* values, std::int64_t count, float* sum, cudaStream_t stream);

/// out[r, ch, i] = in[r, ch, i] * scale[ch] + shift[ch] for in [rows, channels, inner].
void normalise(const Matrix& in, std::int64_t inner, const float* scale, const float* shift,
               std::int64_t channels, void* out, Element out_element, cudaStream_t stream);

/// Row blocks that column_sums() cuts `rows` rows into; a function of nothing else, so that sums have one
/// order.
std::int64_t row_blocks(std::int64_t rows);

/// Where sums over the rows of a matrix [rows, columns] go.
struct ColumnSums {
  Element element;
  std::int64_t rows;
  std::int64_t columns;
  float* partial;  ///< room for row_blocks(rows) * columns
  void* sums;      ///< [columns] of `element`
  bool adds;       ///< to what `sums` holds
};

/// sums[c] = sum over r of matrix[r, c].
void column_sums(const ColumnSums& sums, const void* matrix, cudaStream_t stream);
/// sums[c] = sum over parts of partial[part, c], of columns and element as `sums` says.
void add_parts(const ColumnSums& sums, std::int64_t parts, cudaStream_t stream);
/// gradient[r, c] *= gelu'(before[r, c]), and sums[c] = sum over r of that.
void gelu_gradient(const ColumnSums& sums, void* gradient, const void* before, cudaStream_t stream);

/// out = (x - mean) * rstd * weight + bias by rows, and the rows' mean and rstd = 1 / sqrt(variance +
/// epsilon).
void layer_norm_forward(const Matrix& x, const float* weight, const float* bias, float epsilon, void* out,
                        float* mean, float* rstd, cudaStream_t stream);

/// Inputs of the backward pass; matrices are of the same shape and type as x.
struct LayerNormSaved {
  Matrix x;
  const float* weight;
  const float* mean;
  const float* rstd;
};

/// Floats that layer_norm_backward needs as `partials`.
std::int64_t layer_norm_partials(const Matrix& x);

/// dx = d_passed (may be null) + the gradient through the normalisation; partials receive sums over rows.
void layer_norm_backward(const LayerNormSaved& saved, const void* d_out, const void* d_passed, void* dx,
                         float* partials, cudaStream_t stream);

/// Where a float gradient goes; null where none is wanted; `add` keeps what is there.
struct FloatGradient {
  float* data;
  bool add;
};

/// dweight and dbias from the partials of layer_norm_backward.
void layer_norm_parameters(const Matrix& x, const float* partials, FloatGradient dweight, FloatGradient dbias,
                           cudaStream_t stream);

/// tokens [batch, length]; token_weight [vocabulary, columns]; position_weight [>= length, columns].
struct EmbeddingShape {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t columns;
  std::int64_t vocabulary;
};

/// out[b * length + t] = token_weight[tokens[b, t]] + position_weight[t]; NaN for a token outside.
void embedding_forward(const EmbeddingShape& shape, Element element, const std::int64_t* tokens,
                       const void* token_weight, const void* position_weight, void* out, cudaStream_t stream);

/// target[t] += sum over b of d_out[b * length + t], for t in [0, length).
void position_gradient(const EmbeddingShape& shape, Element element, const void* d_out, void* target,
                       cudaStream_t stream);

/// Scratch memory of the token gradient, on the device.
struct SortedTokens {
  std::uint32_t* tokens;    ///< [batch * length], ascending; `vocabulary` stands for one outside
  std::int32_t* rows;       ///< where each was, ascending within a token
  std::uint32_t* unsorted;  ///< [batch * length]
  std::int32_t* sequence;   ///< [batch * length]
  void* work;               ///< sort_bytes(shape)
};

std::size_t sort_bytes(const EmbeddingShape& shape);
void sort_tokens(const EmbeddingShape& shape, const std::int64_t* tokens, const SortedTokens& sorted,
                 cudaStream_t stream);

/// Floats that token_gradient needs as `partials`.
std::int64_t token_partials(const EmbeddingShape& shape);

/// target[token] += sum of the rows of d_out that came from it, rounded once; other rows are not touched.
void token_gradient(const EmbeddingShape& shape, Element element, const void* d_out,
                    const SortedTokens& sorted, float* partials, void* target, cudaStream_t stream);

}  // namespace cuda_kernels

}  // namespace lockstep::ops
