#pragma once

#include <cstdint>
#include <memory>

namespace lockstep::comm {

/// `bytes` of zeroed host memory, 64-byte aligned; never null. Throws Error(operating_system) when there is
/// none.
std::shared_ptr<void> allocate_host(std::int64_t bytes);

}  // namespace lockstep::comm
