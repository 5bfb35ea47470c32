#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "mpi/job.hpp"

namespace lockstep::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";

/// The step of a folder that `step_name` named, or -1.
std::int64_t step_of(const std::string& name) {
  if (name.size() < kStepPrefix.size() + 10 || name.size() > kStepPrefix.size() + 18) return -1;
  if (name.compare(0, kStepPrefix.size(), kStepPrefix) != 0) return -1;
  const std::string digits = name.substr(kStepPrefix.size());
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  const std::int64_t step = std::stoll(digits);
  return step_name(step) == name ? step : -1;
}

/// Steps that have a folder, newest first.
std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  if (!fs::exists(folder)) return steps;
  std::error_code reason;
  for (fs::directory_iterator entry(folder, reason), end; !reason && entry != end; entry.increment(reason)) {
    const std::int64_t step = step_of(entry->path().filename().string());
    if (step >= 0 && entry->is_directory()) steps.push_back(step);
  }
  if (reason) throw DataError(folder, "", -1, text("cannot be read: ", reason.message()));
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// The newest verified step, -1 when there are no step folders.
std::int64_t newest_good_step(const std::string& folder) {
  const std::vector<std::int64_t> steps = steps_in(folder);
  std::string problems;
  for (const std::int64_t step : steps) {
    const VerifyResult result = verify(folder + "/" + step_name(step));
    if (result.good()) return step;
    log::warn(text("checkpoint of step ", step, " is passed over: ", result.problem));
    problems = result.problem;
  }
  if (steps.empty()) return -1;
  throw DataError(folder, "", -1,
                  text("holds ", steps.size(), " checkpoints and none is complete (the oldest: ", problems,
                       "); --resume never starts again, in another --run folder"));
}

}  // namespace

std::string checkpoints_folder(const std::string& run_folder) {
  return run_folder + "/checkpoints";
}

std::string step_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(kStepPrefix) + std::string(digits.size() < 10 ? 10 - digits.size() : 0, '0') + digits;
}

bool has_steps(const std::string& run_folder) {
  return !steps_in(checkpoints_folder(run_folder)).empty();
}

std::optional<Found> find_latest(const std::string& run_folder, const mpi::Communicator& world) {
  const std::string folder = checkpoints_folder(run_folder);
  std::int64_t step = -1;
  mpi::on_root(world, [&] { step = newest_good_step(folder); });
  step = world.broadcast_value(step);
  if (step < 0) return std::nullopt;
  return Found{folder + "/" + step_name(step), step};
}

void remove_leftovers(const std::string& run_folder, const mpi::Communicator& world) {
  mpi::on_root(world, [&] {
    const std::string folder = checkpoints_folder(run_folder);
    if (!fs::exists(folder)) return;
    std::vector<fs::path> leftovers;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind(".partial-", 0) == 0 || name.rfind(".deleting-", 0) == 0)
        leftovers.push_back(entry.path());
    }
    for (const fs::path& leftover : leftovers) {
      std::error_code reason;
      fs::remove_all(leftover, reason);
      if (reason) log::warn(text(leftover.string(), ": cannot be removed: ", reason.message()));
    }
  });
}

std::vector<Listing> list(const std::string& run_folder) {
  const std::string folder = checkpoints_folder(run_folder);
  std::vector<Listing> listings;
  for (const std::int64_t step : steps_in(folder)) {
    Listing listing;
    listing.folder = folder + "/" + step_name(step);
    listing.step = step;
    try {
      const Manifest manifest = read_manifest(listing.folder);
      listing.created = manifest.created;
      listing.world_size = manifest.world_size;
      listing.bytes = manifest.total_bytes();
      for (const FileRecord& file : manifest.files) check_file(listing.folder, file, /*sizes_only=*/true);
    } catch (const Error& problem) {
      listing.problem = problem.what();
    }
    listings.insert(listings.begin(), listing);
  }
  return listings;
}

VerifyResult verify(const std::string& folder) {
  VerifyResult result;
  result.file = kManifestName;
  try {
    const Manifest manifest = read_manifest(folder);
    for (const FileRecord& file : manifest.files) {
      result.file = file.name;
      check_file(folder, file);
      ++result.files;
      result.bytes += file.bytes;
    }
    const std::int64_t named = step_of(fs::path(folder).filename().string());
    if (named >= 0 && named != manifest.step) {
      result.file = kManifestName;
      result.problem = text(folder, ": is named after step ", named, ", but holds step ", manifest.step);
      return result;
    }
    result.file.clear();
  } catch (const Error& problem) {
    result.problem = problem.what();
  }
  return result;
}

}  // namespace lockstep::checkpoint
