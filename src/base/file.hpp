#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Writes `content` to `path` so that it appears whole or not at all: a temporary beside it, fsync, rename,
/// fsync of the folder. Throws Error with `code` and the system's words.
void write_file_atomically(const std::string& path, std::string_view content);

/// Makes `path` and its parents; throws Error(cannot_create) when it cannot, or when it exists and is not a
/// folder.
void make_folder(const std::string& path);

/// Flushes a file or folder to the disk; throws Error(checkpoint_io).
void sync_path(const std::string& path);

/// Renames and flushes the parent folder; throws Error(checkpoint_io).
void rename_durably(const std::string& from, const std::string& to);

}  // namespace lockstep
