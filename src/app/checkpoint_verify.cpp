#include <filesystem>
#include <iostream>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

/// The folder itself when it is a checkpoint, or all checkpoints of a run.
std::vector<std::string> checkpoints_at(const std::string& path) {
  if (!fs::is_directory(path)) {
    throw DataError(path, "", -1, "no such folder; give the folder of a run or of a checkpoint",
                    ExitCode::input_missing);
  }
  if (!fs::is_directory(checkpoint::checkpoints_folder(path))) return {path};
  std::vector<std::string> folders;
  for (const auto& entry : checkpoint::list(path)) folders.push_back(entry.folder);
  if (folders.empty()) throw DataError(path, "", -1, "holds no checkpoint", ExitCode::input_missing);
  return folders;
}

int run(const config::CheckpointVerifySettings& settings) {
  int damaged = 0;
  const auto folders = checkpoints_at(settings.path);
  for (const auto& folder : folders) {
    const auto result = checkpoint::verify(folder);
    if (result.good()) {
      std::cout << folder << ": good, " << result.files << " files, " << format_bytes(result.bytes)
                << std::endl;
    } else {
      std::cout << folder << ": damaged, " << result.file << " " << result.problem << std::endl;
      ++damaged;
    }
  }
  if (damaged > 0) {
    throw DataError(settings.path, "", -1, text(damaged, " of ", folders.size(), " checkpoints are damaged"));
  }
  return 0;
}

}  // namespace

Job checkpoint_verify(const Arguments& arguments) {
  return job_alone<config::CheckpointVerifySettings>(arguments, run);
}

}  // namespace lockstep::app
