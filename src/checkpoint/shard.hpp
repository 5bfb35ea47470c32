#pragma once

#include <string>

#include "checkpoint/manifest.hpp"

namespace lockstep::checkpoint {

/// Writes rank `rank`'s range of every array as contiguous float32 datasets /masters, /moment0, ... and its
/// buffers as /buffers/NAME, then flushes the file to the disk. Local. Throws Error(internal) when a master
/// is not finite and Error(checkpoint_io) when the file cannot be written.
void write_shard(const std::string& path, const Snapshot& snapshot, int rank, int world_size);

/// Copies into `into`'s arrays, tensor by tensor, whatever the shards of `manifest` hold of them. Local;
/// reads all shards. Both layouts have been compared before (see match_layouts). Throws DataError.
void read_arrays(const std::string& folder, const Manifest& manifest, Snapshot& into);

/// This rank's buffers: from its own shard at the world size of the save, from shard 0 otherwise. Local.
void read_buffers(const std::string& folder, const Manifest& manifest, Snapshot& into, int rank,
                  int world_size);

/// Bytes that write_shard stores on all ranks together, headers of files not counted.
std::int64_t payload_bytes(const Snapshot& snapshot, int world_size);

/// "float32", ... ; throws UsageError for a dtype that checkpoints do not hold.
std::string scalar_name(const at::Tensor& values);

}  // namespace lockstep::checkpoint
