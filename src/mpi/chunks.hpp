#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::mpi {

/// Calls `visit(begin, count)` for consecutive ranges that cover 0 to `total`, each of at most `limit`. MPI
/// counts are int: what may be longer travels in chunks.
template <class Visit>
void for_each_chunk(std::int64_t total, std::int64_t limit, const Visit& visit) {
  for (std::int64_t begin = 0; begin < total; begin += limit) visit(begin, std::min(limit, total - begin));
}

}  // namespace lockstep::mpi
