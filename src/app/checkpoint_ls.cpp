#include <filesystem>
#include <iomanip>
#include <iostream>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"

namespace lockstep::app {

namespace {

int run(const config::CheckpointLsSettings& settings) {
  if (!std::filesystem::is_directory(settings.path)) {
    throw DataError(settings.path, "", -1, "no such folder; give the folder of a run",
                    ExitCode::input_missing);
  }
  const auto found = checkpoint::list(settings.path);
  if (found.empty()) {
    std::cout << "no checkpoints in " << checkpoint::checkpoints_folder(settings.path) << std::endl;
    return 0;
  }
  std::cout << "      step  ranks        size  saved                 folder\n";
  for (const auto& entry : found) {
    std::cout << std::setw(10) << entry.step << "  ";
    if (entry.problem.empty()) {
      std::cout << std::setw(5) << entry.world_size << "  " << std::setw(10) << format_bytes(entry.bytes)
                << "  " << std::left << std::setw(20) << entry.created << std::right << "  " << entry.folder
                << "\n";
    } else {
      std::cout << entry.folder << ": " << entry.problem << "\n";
    }
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace

Job checkpoint_ls(const Arguments& arguments) {
  return job_alone<config::CheckpointLsSettings>(arguments, run);
}

}  // namespace lockstep::app
