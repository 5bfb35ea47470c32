#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/snapshot.hpp"
#include "mpi/communicator.hpp"

/// Checkpoints: <run>/checkpoints/step-0000001200/ holds one HDF5 shard a rank, state.json and manifest.json.
/// A folder of that name appears by one rename, complete and on the disk, or not at all, and is never written
/// to again.
namespace lockstep::checkpoint {

/// At least this many complete checkpoints stay, whatever `keep` says: the newest one may turn out
/// unreadable.
inline constexpr std::int64_t kLeastKept = 2;

/// Collective: writes `snapshot`, commits it, then removes the oldest beyond `keep` (0: none). Returns the
/// committed folder. A complete checkpoint of this step is left as it is; a damaged one is moved aside. When
/// any rank fails, the partial folder is removed and all ranks raise the error of the lowest failing rank:
/// checkpoint_io, or internal when a master is not finite. What was committed before is untouched.
std::string save(const std::string& run_folder, const Snapshot& snapshot, const mpi::Communicator& world,
                 std::int64_t keep);

struct Found {
  std::string folder;
  std::int64_t step = 0;
};

/// Collective: the newest complete checkpoint whose files all have their checksums (rank 0 reads them). Warns
/// about each damaged one that it passes over. None at all: nullopt. Throws DataError on all ranks when there
/// are some and none is valid.
std::optional<Found> find_latest(const std::string& run_folder, const mpi::Communicator& world);

/// Whether the run's folder holds any checkpoint, complete or not. Local.
bool has_steps(const std::string& run_folder);

/// Collective: removes what saves and prunings that were killed left behind. For the start of training only:
/// another job that is saving into the same run folder would lose its partial checkpoint.
void remove_leftovers(const std::string& run_folder, const mpi::Communicator& world);

/// Collective: fills `into`'s step, state, arrays and buffers from `folder`, saved at any world size. Tensors
/// are matched by name and shape. Throws on all ranks alike, before any array is touched: DataError(bad_data)
/// for a damaged file, DataError(configuration) that names the first tensor or array that differs, and both
/// shapes, for a checkpoint of another model. `into.config` is left alone; read_manifest(folder).config is
/// the saved one.
void load(const std::string& folder, Snapshot& into, const mpi::Communicator& world);

/// One step folder of a run; `problem` is empty when the manifest is valid and all files have their sizes.
struct Listing {
  std::string folder;
  std::int64_t step = 0;
  std::string created;
  int world_size = 0;
  std::int64_t bytes = 0;
  std::string problem;
};

/// Local: oldest first; reads manifests and sizes, not the shards.
std::vector<Listing> list(const std::string& run_folder);

/// `problem` is empty when every file has its size and checksum; otherwise `file` is the first bad one.
struct VerifyResult {
  std::string file;
  std::string problem;
  int files = 0;  ///< that were good
  std::int64_t bytes = 0;
  bool good() const { return problem.empty(); }
};

/// Local: reads every byte of the checkpoint.
VerifyResult verify(const std::string& folder);

/// <run>/checkpoints
std::string checkpoints_folder(const std::string& run_folder);
/// "step-0000001200"
std::string step_name(std::int64_t step);

}  // namespace lockstep::checkpoint
