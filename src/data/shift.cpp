#include <algorithm>
#include <cstring>

#include "base/hash.hpp"
#include "data/loader.hpp"

namespace lockstep::data {

namespace {

constexpr std::uint64_t kShiftPurpose = 16;  // tells its keys from those of the order

}  // namespace

Shift image_shift(std::uint64_t seed, std::int64_t epoch, std::int64_t row, std::int64_t limit) {
  const std::uint64_t key = mix_all(seed, kShiftPurpose, epoch, row);
  const auto choices = static_cast<std::uint64_t>(2 * limit + 1);
  return {static_cast<std::int64_t>((key & 0xffffffffu) % choices) - limit,
          static_cast<std::int64_t>((key >> 32) % choices) - limit};
}

void shift_image(const std::byte* in, std::byte* out, const Shape& shape, std::int64_t element_bytes,
                 Shift shift) {
  const std::int64_t height = shape[1];
  const std::int64_t width = shape[2];
  const std::int64_t kept = std::max<std::int64_t>(width - std::abs(shift.dx), 0);
  const std::int64_t from =
      std::max<std::int64_t>(-shift.dx, 0);  // first column of the source that stays inside
  const std::int64_t to = std::max<std::int64_t>(shift.dx, 0);
  std::memset(out, 0, static_cast<std::size_t>(shape[0] * height * width * element_bytes));
  for (std::int64_t channel = 0; channel < shape[0]; ++channel) {
    for (std::int64_t y = 0; y < height; ++y) {
      if (y + shift.dy < 0 || y + shift.dy >= height) continue;
      const std::int64_t source = (channel * height + y) * width + from;
      const std::int64_t target = (channel * height + y + shift.dy) * width + to;
      std::memcpy(out + target * element_bytes, in + source * element_bytes,
                  static_cast<std::size_t>(kept * element_bytes));
    }
  }
}

}  // namespace lockstep::data
