#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "checkpoint/snapshot.hpp"

namespace lockstep::checkpoint {

inline constexpr int kFormatVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kStateName = "state.json";

/// One file of a checkpoint as it was when it was committed.
struct FileRecord {
  std::string name;  ///< without a folder
  std::int64_t bytes = 0;
  std::string xxh3;  ///< XXH3-64 of the whole file, 16 hexadecimal digits
};

/// A model buffer: every shard holds one of this name and shape.
struct BufferRecord {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string scalar;  ///< "float32", ...
};

/// What a complete checkpoint holds. Written last, so a folder without a valid one is no checkpoint.
struct Manifest {
  std::int64_t step = 0;
  int world_size = 0;  ///< shards; shard r holds range_of(flat_size, r, world_size) of every array
  std::int64_t flat_size = 0;
  std::string created;  ///< UTC
  std::vector<std::string> arrays;
  std::vector<TensorPlace> layout;
  std::vector<BufferRecord> buffers;
  std::vector<FileRecord> files;  ///< all but the manifest
  nlohmann::json config;
  std::string config_hash;  ///< XXH3-64 of config's text

  std::int64_t total_bytes() const;
};

/// The text of manifest.json, with its own checksum in it.
std::string to_text(const Manifest& manifest);

/// The inverse. `path` is for messages. Throws DataError when the text is no manifest, of a newer format
/// version, fails its checksum, or names a file outside its folder.
Manifest parse_manifest(const std::string& path, const std::string& words);

/// Local. Throws DataError; input_missing when `folder` has no manifest.json.
Manifest read_manifest(const std::string& folder);

/// "shard-00003-of-00008.h5"
std::string shard_name(int rank, int world_size);

/// Size and checksum of `folder`/`name`, read in one pass. Symbolic links are not followed. Throws DataError
/// with `on_failure`.
FileRecord measure(const std::string& folder, const std::string& name,
                   ExitCode on_failure = ExitCode::bad_data);

/// Throws DataError that names the file, with both values, when it is not what `expected` says. With
/// `sizes_only` the bytes are not read.
void check_file(const std::string& folder, const FileRecord& expected, bool sizes_only = false);

}  // namespace lockstep::checkpoint
