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

/// `place`: the flag and path that led to the `stored` settings.
void check_same_run(const config::TrainSettings& settings, const std::string& place,
                    const std::string& stored, const std::string& source) {
  const auto differences = config::differences(config::train_settings_from_json(stored, source), settings);
  if (differences.empty()) return;
  throw UsageError(text(place, " holds a run with other settings: ", join(differences, "; "),
                        "; take another folder, or the old settings to continue"),
                   ExitCode::configuration);
}

void check_writable(const std::string& folder) {
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(ExitCode::permission,
                text("--run ", folder, ": cannot be written to; check its permissions"));
  }
}

/// An attempt that ended before its first report left only its settings behind.
bool began(const fs::path& folder) {
  const fs::path metrics = folder / "metrics.jsonl";
  return checkpoint::has_steps(folder.string()) || (fs::exists(metrics) && fs::file_size(metrics) > 0);
}

/// Rank 0. What a run folder holds must be the run that is asked for, if that took a step.
void examine(const config::TrainSettings& settings) {
  const fs::path stored = fs::path(settings.run.folder) / "config.json";
  if (!fs::exists(stored) || !began(settings.run.folder)) return;
  if (settings.run.resume == "never") {
    throw UsageError(text("--run ", settings.run.folder,
                          " holds a run already and --resume is never; take another folder or remove it"),
                     ExitCode::configuration);
  }
  check_same_run(settings, "--run " + settings.run.folder, read_text_file(stored.string()), stored.string());
}

/// Rank 0. The step of the checkpoint that --resume names.
std::int64_t examine_checkpoint(const config::TrainSettings& settings) {
  const std::string& folder = settings.run.resume;
  const auto manifest = checkpoint::read_manifest(folder);
  check_same_run(settings, "--resume " + folder, manifest.config.dump(), folder + "/manifest.json");
  return manifest.step;
}

fs::path completion_mark(const std::string& folder) {
  return fs::path(folder) / "COMPLETE";
}

}  // namespace

RunFolder find_run(const config::TrainSettings& settings, const mpi::Communicator& world) {
  RunFolder found;
  mpi::on_root(world, [&] {
    examine(settings);
    found.complete = fs::exists(completion_mark(settings.run.folder));
  });
  found.complete = world.broadcast_value(found.complete);
  const std::string& resume = settings.run.resume;
  if (resume != "auto" && resume != "never") {
    found.checkpoint = resume;
    mpi::on_root(world, [&] { found.step = examine_checkpoint(settings); });
    found.step = world.broadcast_value(found.step);
  } else if (const auto latest = checkpoint::find_latest(settings.run.folder, world)) {
    found.checkpoint = latest->folder;
    found.step = latest->step;
  }
  return found;
}

void enter_run(const config::TrainSettings& settings, const RunFolder& found,
               const mpi::Communicator& world) {
  mpi::on_root(world, [&] {
    const std::string& folder = settings.run.folder;
    make_folder(folder);
    check_writable(folder);
    fs::remove(completion_mark(folder));  // a longer run is not complete until it reaches its own end
    write_file_atomically(folder + "/config.json", config::to_json(settings));
    const nlohmann::json attempt{
        {"time", utc_now()}, {"host", mpi::host_name()}, {"ranks", world.size()}, {"from_step", found.step}};
    telemetry::AppendFile(folder + "/attempts.jsonl").append(attempt.dump());
  });
  checkpoint::remove_leftovers(settings.run.folder, world);  // of attempts that were killed while saving
}

void mark_complete(const std::string& folder, std::int64_t step) {
  write_file_atomically(completion_mark(folder).string(), text("step ", step, "\n"));
}

}  // namespace lockstep::train
