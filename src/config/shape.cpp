#include "config/shape.hpp"

#include <charconv>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::config {

namespace {

constexpr std::size_t kMostSizes = 4;
constexpr std::int64_t kMostElements = (std::int64_t{1} << 31) - 1;

}  // namespace

std::vector<std::int64_t> read_shape(const std::string& value, const std::string& place) {
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  bool good = true;
  for (const auto& word : split(value, value.find(',') == std::string::npos ? 'x' : ',')) {
    std::int64_t size = 0;
    const char* const end = word.data() + word.size();
    const auto result = std::from_chars(word.data(), end, size);
    good = good && result.ec == std::errc() && result.ptr == end && size >= 1 &&
           !__builtin_mul_overflow(elements, size, &elements) && elements <= kMostElements;
    shape.push_back(size);
  }
  if (good && !shape.empty() && shape.size() <= kMostSizes) return shape;
  throw UsageError(text(place, ": '", value, "' is not allowed; give up to ", kMostSizes,
                        " sizes joined by x, such as 1x28x28"));
}

}  // namespace lockstep::config
