#pragma once

#include <cstddef>
#include <cstdint>

#include "hdf5/scalar.hpp"

namespace lockstep::data {

/// Reverses the bytes of each of `count` elements in place.
void swap_bytes(std::int64_t element_bytes, std::byte* data, std::int64_t count);

/// Widens `count` integers of `scalar`, in this machine's byte order and at any alignment. A uint64 above the
/// range becomes negative, so that no check of labels lets it pass.
void to_int64(hdf5::Scalar scalar, const std::byte* in, std::int64_t count, std::int64_t* out);

}  // namespace lockstep::data
