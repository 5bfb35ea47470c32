#pragma once

#include "ops/device.cuh"

namespace lockstep::ops::cuda_kernels {

/// Calls `body` with the packs of a lane, where a warp holds a row, as a constant; false for rows too wide
/// for that or no multiple of 16 bytes.
template <class T, class Body>
bool with_packs(std::int64_t columns, Body body) {
  if (columns == 0 || columns % kWide<T> != 0) return false;
  const std::int64_t packs = (columns / kWide<T> + kWarp - 1) / kWarp;
  if (packs <= 1) return body(std::integral_constant<int, 1>()), true;
  if (packs <= 2) return body(std::integral_constant<int, 2>()), true;
  if (packs <= 3) return body(std::integral_constant<int, 3>()), true;
  if (packs <= 4) return body(std::integral_constant<int, 4>()), true;
  if (packs <= 5) return body(std::integral_constant<int, 5>()), true;
  if (packs <= 7) return body(std::integral_constant<int, 7>()), true;
  if (packs <= 8) return body(std::integral_constant<int, 8>()), true;
  if constexpr (sizeof(T) == 4) {
    if (packs <= 13) return body(std::integral_constant<int, 13>()), true;
  }
  return false;
}

}  // namespace lockstep::ops::cuda_kernels
