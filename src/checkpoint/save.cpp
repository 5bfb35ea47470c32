#include <filesystem>

#include <sys/statvfs.h>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard.hpp"
#include "mpi/job.hpp"

namespace lockstep::checkpoint {

namespace {

namespace fs = std::filesystem;

/// Runs `body`; whatever the system refused becomes checkpoint_io, so that a caller can go on training
/// without.
template <class Body>
void as_checkpoint_io(Body body) {
  try {
    body();
  } catch (const Error& problem) {
    if (problem.code() == ExitCode::internal || problem.code() == ExitCode::checkpoint_io) throw;
    throw Error(ExitCode::checkpoint_io, problem.what(), problem.where());
  } catch (const fs::filesystem_error& problem) {
    throw Error(ExitCode::checkpoint_io, problem.what());
  }
}

void remove_quietly(const std::string& folder) {
  std::error_code reason;
  fs::remove_all(folder, reason);
  if (reason) log::warn(text(folder, ": cannot be removed: ", reason.message()));
}

/// The disk must take the whole checkpoint; a twentieth more for the files' own structure.
void require_space(const std::string& folder, std::int64_t bytes) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return;  // the writes themselves will tell
  const double free_bytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  if (static_cast<double>(bytes) * 1.05 <= free_bytes) return;
  throw Error(ExitCode::checkpoint_io,
              text(folder, ": the checkpoint needs ", format_bytes(bytes), ", free are ",
                   format_bytes(static_cast<std::int64_t>(free_bytes))));
}

void start_partial(const std::string& root, const std::string& partial, std::int64_t bytes) {
  make_folder(root);
  fs::remove_all(partial);
  require_space(root, bytes);
  make_folder(partial);
}

/// What was there and is damaged keeps its bytes, under a name that nobody resumes from.
void move_aside(const std::string& root, const std::string& name) {
  for (int attempt = 1;; ++attempt) {
    const std::string aside = text(root, "/damaged-", name, "-", attempt);
    if (fs::exists(aside)) continue;
    log::warn(text(root, "/", name, " is damaged and is now ", aside));
    rename_durably(root + "/" + name, aside);
    return;
  }
}

Manifest describe(const Snapshot& snapshot, const std::vector<std::string>& records,
                  const FileRecord& state) {
  Manifest manifest;
  manifest.step = snapshot.step;
  manifest.world_size = static_cast<int>(records.size());
  manifest.flat_size = snapshot.flat_size;
  manifest.created = utc_now();
  manifest.layout = snapshot.layout;
  manifest.config = snapshot.config;
  manifest.config_hash = hex(hash_text(snapshot.config.dump()));
  for (const FlatArray& array : snapshot.arrays) manifest.arrays.push_back(array.name);
  for (const NamedTensor& buffer : snapshot.buffers) {
    manifest.buffers.push_back({buffer.name, buffer.values.sizes().vec(), scalar_name(buffer.values)});
  }
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const nlohmann::json record = nlohmann::json::parse(records[rank]);
    manifest.files.push_back(
        {shard_name(static_cast<int>(rank), manifest.world_size), record.at(0), record.at(1)});
  }
  manifest.files.push_back(state);
  return manifest;
}

void commit(const std::string& root, const std::string& name, const std::string& partial,
            const Snapshot& snapshot, const std::vector<std::string>& records) {
  write_file_atomically(partial + "/" + kStateName, snapshot.state.dump(1) + "\n");
  const FileRecord state = measure(partial, kStateName, ExitCode::checkpoint_io);
  const std::string words = to_text(describe(snapshot, records, state));
  parse_manifest(partial + "/" + kManifestName, words);  // what cannot be read back is not committed
  write_file_atomically(partial + "/" + kManifestName, words);
  sync_path(partial);
  if (fs::exists(root + "/" + name)) move_aside(root, name);
  rename_durably(partial, root + "/" + name);
}

/// Removes the oldest complete checkpoints beyond `keep`; never `newest`, which may be older than others
/// after a resume from an early step. Damaged ones neither count nor go: a person may want to look at them.
void prune(const std::string& run_folder, const std::string& newest, std::int64_t keep) {
  if (keep == 0) return;
  std::vector<std::string> complete;  // oldest first
  for (const Listing& listing : list(run_folder)) {
    if (listing.problem.empty()) complete.push_back(listing.folder);
  }
  const std::int64_t kept = std::max(keep, kLeastKept);
  for (std::int64_t i = 0; i + kept < static_cast<std::int64_t>(complete.size()); ++i) {
    if (complete[i] == newest) continue;
    const fs::path old = complete[i];
    const std::string doomed = (old.parent_path() / (".deleting-" + old.filename().string())).string();
    try {
      fs::remove_all(doomed);
      rename_durably(old.string(), doomed);  // a kill half-way leaves no half checkpoint under its name
      remove_quietly(doomed);
    } catch (const std::exception& problem) {
      log::warn(text("an old checkpoint stays: ", problem.what()));
    }
  }
}

}  // namespace

std::string save(const std::string& run_folder, const Snapshot& snapshot, const mpi::Communicator& world,
                 std::int64_t keep) {
  const std::string root = checkpoints_folder(run_folder);
  const std::string name = step_name(snapshot.step);
  const std::string target = root + "/" + name;
  const std::string partial = root + "/.partial-" + name;

  bool done = false;
  mpi::on_root(world, [&] {
    as_checkpoint_io([&] {
      done = fs::exists(target) && verify(target).good();
      if (!done) start_partial(root, partial, payload_bytes(snapshot, world.size()));
    });
  });
  if (world.broadcast_value(done)) return target;

  try {
    std::string record;
    mpi::agree(world, [&] {
      as_checkpoint_io([&] {
        const std::string shard = shard_name(world.rank(), world.size());
        write_shard(partial + "/" + shard, snapshot, world.rank(), world.size());
        const FileRecord measured = measure(partial, shard, ExitCode::checkpoint_io);
        record = nlohmann::json{measured.bytes, measured.xxh3}.dump();
      });
    });
    const std::vector<std::string> records = world.all_gather_text(record);
    mpi::on_root(world, [&] { as_checkpoint_io([&] { commit(root, name, partial, snapshot, records); }); });
  } catch (const Error&) {
    if (world.rank() == 0) remove_quietly(partial);
    throw;
  }
  mpi::on_root(world, [&] { prune(run_folder, target, keep); });
  return target;
}

}  // namespace lockstep::checkpoint
