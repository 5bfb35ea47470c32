#pragma once

#include <cstdint>

#include <cuda.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cuda/error.hpp"
#include "ops/kernels.hpp"

/// What a tensor copy has to know of a matrix, made on the host.
namespace lockstep::ops::cuda_kernels {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

inline EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cuda::check(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status),
        "cudaGetDriverEntryPointByVersion");
    if (status != cudaDriverEntryPointSuccess)
      throw ApiError("CUDA", "cuTensorMapEncodeTiled", static_cast<int>(status),
                     "this driver has it not; take one for CUDA 12 or newer, or --ops reference",
                     ExitCode::unavailable);
    return reinterpret_cast<EncodeTiled>(found);
  }();
  return function;
}

constexpr int kBoxInner = 64;  // of 2 bytes: one row of the swizzle

/// Boxes of [box_outer, kBoxInner] elements of a row-major matrix [outer, inner] of half or bfloat16.
inline CUtensorMap tensor_map(const void* matrix, Element element, std::int64_t outer, std::int64_t inner,
                              int box_outer) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(outer)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(inner * 2)};
  const cuuint32_t box[] = {kBoxInner, static_cast<cuuint32_t>(box_outer)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult status = encode_tiled()(
      &map, element == Element::float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      2, const_cast<void*>(matrix), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw ApiError("CUDA", "cuTensorMapEncodeTiled", static_cast<int>(status),
                   text("refused a matrix of ", outer, " x ", inner, " at ", matrix));
  return map;
}

}  // namespace lockstep::ops::cuda_kernels
