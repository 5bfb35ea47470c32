#include "data/numbers.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::data {

namespace {

template <class Integer>
void widen(const std::byte* in, std::int64_t count, std::int64_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    Integer value;
    std::memcpy(&value, in + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    out[i] = static_cast<std::int64_t>(value);
  }
}

}  // namespace

void swap_bytes(std::int64_t element_bytes, std::byte* data, std::int64_t count) {
  if (element_bytes == 1) return;
  for (std::byte* element = data; element != data + count * element_bytes; element += element_bytes) {
    std::reverse(element, element + element_bytes);
  }
}

void to_int64(hdf5::Scalar scalar, const std::byte* in, std::int64_t count, std::int64_t* out) {
  using hdf5::Scalar;
  switch (scalar) {
    case Scalar::uint8:
      return widen<std::uint8_t>(in, count, out);
    case Scalar::int8:
      return widen<std::int8_t>(in, count, out);
    case Scalar::uint16:
      return widen<std::uint16_t>(in, count, out);
    case Scalar::int16:
      return widen<std::int16_t>(in, count, out);
    case Scalar::uint32:
      return widen<std::uint32_t>(in, count, out);
    case Scalar::int32:
      return widen<std::int32_t>(in, count, out);
    case Scalar::uint64:
      return widen<std::uint64_t>(in, count, out);
    case Scalar::int64:
      return widen<std::int64_t>(in, count, out);
    default:
      throw UsageError(text("labels are integers, not ", hdf5::name(scalar)));
  }
}

}  // namespace lockstep::data
