#include "data/pack_folder.hpp"

#include <array>
#include <cstdio>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "data/tokenizer.hpp"

namespace lockstep::data {

namespace fs = std::filesystem;

namespace {

fs::path beside(const fs::path& folder, const char* ending) {
  return folder.string() + ending;
}

bool is_packed(const fs::path& file) {
  const std::string ending = file.extension().string();
  return ending == ".h5" || ending == ".hdf5" || file.filename() == kTokenizerFile ||
         file.filename() == kTokenizerModelFile;
}

}  // namespace

fs::path folder_path(const std::string& path) {
  fs::path folder = fs::path(path).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

void check_folder(const fs::path& folder, bool overwrite) {
  if (!fs::exists(folder)) return;
  if (!fs::is_directory(folder))
    throw UsageError(folder.string() + " is a file, not a folder", ExitCode::cannot_create);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!is_packed(entry.path())) {
      throw UsageError(text(folder.string(), " holds something that is no shard (",
                            entry.path().filename().string(), "); name another folder"),
                       ExitCode::cannot_create);
    }
    if (!overwrite) {
      throw UsageError(text(folder.string(), " holds shards already (", entry.path().filename().string(),
                            "); pass --overwrite to replace them, or name another folder"),
                       ExitCode::cannot_create);
    }
  }
}

fs::path begin_folder(const fs::path& folder) {
  fs::path partial = beside(folder, ".partial");
  fs::remove_all(partial);  // of a pack that was killed
  make_folder(partial.string());
  return partial;
}

void swap_in(const fs::path& finished, const fs::path& folder) {
  const fs::path old = beside(folder, ".old");
  if (fs::exists(folder)) {
    fs::remove_all(old);
    rename_durably(folder.string(), old.string());
  }
  rename_durably(finished.string(), folder.string());
  fs::remove_all(old);
}

std::string shard_name(const std::string& prefix, std::int64_t shard, std::int64_t shards) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "%s-%05lld-of-%05lld.h5", prefix.c_str(),
                static_cast<long long>(shard), static_cast<long long>(shards));
  return name.data();
}

}  // namespace lockstep::data
