#include "comm/host_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::comm {

std::shared_ptr<void> allocate_host(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t rounded = std::max<std::int64_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  void* const data = std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded));
  if (data == nullptr) {
    throw Error(ExitCode::operating_system, text("no host memory for ", format_bytes(rounded)));
  }
  std::memset(data, 0, static_cast<std::size_t>(rounded));
  return {data, [](void* held) { std::free(held); }};
}

}  // namespace lockstep::comm
