#pragma once

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Throws UsageError when the count is negative, or when there is something to send but no memory; names
/// `call`.
void check_buffer(const Buffer& buffer, const char* call);
/// Throws UsageError unless 0 <= root < size.
void check_root(int root, int size);
/// Elements of one rank's row; throws UsageError when `all.count` is no multiple of `size`.
std::int64_t row_count(const Buffer& all, int size);

}  // namespace lockstep::comm
