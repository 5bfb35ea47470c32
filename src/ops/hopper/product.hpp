#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "ops/kernels.hpp"

namespace lockstep::ops::cuda_kernels {

/// What becomes of a product before it is stored.
enum class ProductEpilogue {
  bias,         ///< adds bias[column]; the right matrix is [columns, inner]
  bias_gelu,    ///< the same, then GELU in its tanh form; its slope goes to `auxiliary`
  factor_sums,  ///< multiplies by `auxiliary` and sums that over rows; the right matrix is [inner, columns]
};

/// result [rows, columns] = left [rows, inner] x right, then the epilogue; all row-major, contiguous, of half
/// or bfloat16 and aligned to 16 bytes. The product is summed in float and rounded; then the result of each
/// step of the epilogue is, of the bias, of GELU, of the factor.
struct HopperProduct {
  Element element;
  std::int64_t rows, columns, inner;  ///< columns and inner multiples of 8
  const void* left;
  const void* right;
  ProductEpilogue epilogue;
  const void* bias;  ///< [columns], of the two epilogues with one
  void* auxiliary;   ///< [rows, columns]: read by factor_sums, written by bias_gelu
  void* result;
  float* partial;  ///< factor_sums: [hopper_parts(rows), columns], receives sums over kHopperRows rows each
};

constexpr std::int64_t kHopperRows = 128;
constexpr std::int64_t hopper_parts(std::int64_t rows) {
  return (rows + kHopperRows - 1) / kHopperRows;
}

/// On a device of compute capability 9.0 only. Only enqueues, and can be captured; the same bits each time.
void hopper_product(const HopperProduct& product, cudaStream_t stream);

}  // namespace lockstep::ops::cuda_kernels
