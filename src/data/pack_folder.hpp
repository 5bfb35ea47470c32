#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

// Part of the room's inside: how packers put folders of shards in their places.
namespace lockstep::data {

/// "train/" is "train".
std::filesystem::path folder_path(const std::string& path);

/// A folder may be made, filled when empty, and replaced when all it holds is what packers write and that was
/// asked for. Throws UsageError(cannot_create).
void check_folder(const std::filesystem::path& folder, bool overwrite);

/// Makes an empty folder beside `folder` for what will become it, and returns it.
std::filesystem::path begin_folder(const std::filesystem::path& folder);

/// Puts the finished folder in its place. The old one is set aside before it is removed, so that a kill loses
/// neither.
void swap_in(const std::filesystem::path& finished, const std::filesystem::path& folder);

/// "train-00000-of-00004.h5".
std::string shard_name(const std::string& prefix, std::int64_t shard, std::int64_t shards);

}  // namespace lockstep::data
