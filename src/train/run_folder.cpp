#include "train/run_folder.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/stored.hpp"
#include "mpi/job.hpp"
#include "telemetry/append_file.hpp"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

void check_same_run(const config::TrainSettings& settings, const fs::path& stored) {
  const auto old = config::train_settings_from_json(read_text_file(stored.string()), stored.string());
  const auto differences = config::differences(old, settings);
  if (differences.empty()) return;
  throw UsageError(text("--run ", settings.run.folder, " holds a run with other settings: ", join(differences, "; "),
                        "; take another folder, or the old settings to continue"),
                   ExitCode::configuration);
}

void check_writable(const std::string& folder) {
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(ExitCode::permission, text("--run ", folder, ": cannot be written to; check its permissions"));
  }
}

/// Rank 0: looks and refuses before anything is written.
void examine(const config::TrainSettings& settings) {
  const fs::path folder(settings.run.folder);
  const fs::path stored = folder / "config.json";
  if (!fs::exists(stored)) return;
  if (settings.run.resume == "never") {
    throw UsageError(text("--run ", settings.run.folder,
                          " holds a run already and --resume is never; take another folder or remove it"),
                     ExitCode::configuration);
  }
  check_same_run(settings, stored);
}

void record_attempt(const config::TrainSettings& settings, const RunFolder& found, const mpi::Communicator& world) {
  const fs::path folder(settings.run.folder);
  write_file_atomically((folder / "config.json").string(), config::to_json(settings));
  const nlohmann::json attempt{
      {"time", utc_now()}, {"host", mpi::host_name()}, {"ranks", world.size()}, {"from_step", found.step}};
  telemetry::AppendFile((folder / "attempts.jsonl").string()).append(attempt.dump());
}

}  // namespace

RunFolder open_run_folder(const config::TrainSettings& settings, const mpi::Communicator& world) {
  RunFolder found;
  mpi::on_root(world, [&] {
    examine(settings);
    make_folder(settings.run.folder);
    check_writable(settings.run.folder);
  });
  const std::string& resume = settings.run.resume;
  if (resume != "auto" && resume != "never") {
    found.checkpoint = resume;
    mpi::on_root(world, [&] { found.step = checkpoint::read_manifest(resume).step; });
    found.step = world.broadcast_value(found.step);
  } else if (const auto latest = checkpoint::find_latest(settings.run.folder, world)) {
    found.checkpoint = latest->folder;
    found.step = latest->step;
  }
  bool complete = false;
  mpi::on_root(world, [&] {
    complete = fs::exists(fs::path(settings.run.folder) / "COMPLETE");
    record_attempt(settings, found, world);
  });
  found.complete = world.broadcast_value(complete);
  return found;
}

void mark_complete(const std::string& folder, std::int64_t step) {
  write_file_atomically(folder + "/COMPLETE", text("step ", step, "\n"));
}

}  // namespace lockstep::train
