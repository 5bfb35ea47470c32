#pragma once

#include <torch/torch.h>

#include <cstring>
#include <exception>
#include <filesystem>
#include <string>

#include <unistd.h>

#include "base/file.hpp"
#include "checkpoint/checkpoint.hpp"
#include "mpi/job.hpp"

namespace lockstep::test {

/// A run folder that all ranks share, removed at the end.
class RunFolder {
 public:
  RunFolder() : world_(mpi::Communicator::world()) {
    const auto here =
        std::filesystem::temp_directory_path() / ("lockstep-checkpoint-" + std::to_string(::getpid()));
    path_ = world_.broadcast_text(here.string());
    if (world_.rank() == 0) {
      std::filesystem::remove_all(path_);
      make_folder(path_);
    }
    world_.barrier();
  }
  ~RunFolder() {
    if (std::uncaught_exceptions() == 0)
      world_.barrier();  // all have read; a failing rank ends the job by itself
    if (world_.rank() == 0) std::filesystem::remove_all(path_);
  }
  const std::string& path() const { return path_; }
  const mpi::Communicator& world() const { return world_; }
  std::string step(std::int64_t step) const {
    return checkpoint::checkpoints_folder(path_) + "/" + checkpoint::step_name(step);
  }
  bool has(std::int64_t step) const { return std::filesystem::exists(this->step(step)); }

  /// Runs `body` on rank 0 while the others wait.
  template <class Body>
  void on_root(Body body) const {
    mpi::on_root(world_, [&] { body(); });
  }

 private:
  mpi::Communicator world_;
  std::string path_;
};

/// Values in which each element of each array is told from all others; subnormals and minus zero among them.
inline at::Tensor numbered(std::int64_t size, float first) {
  at::Tensor values = at::arange(size, at::kFloat).div_(3).add_(first);
  if (size > 4) {
    values[3] = 1e-42f;
    values[4] = -0.0f;
  }
  return values;
}

/// Three tensors with a gap between the first two, in a flat space of 25 elements; `zero` makes an empty one
/// to load into.
inline checkpoint::Snapshot sample(std::int64_t step, bool zero = false) {
  checkpoint::Snapshot snapshot;
  snapshot.step = step;
  snapshot.flat_size = 25;
  snapshot.layout = {{"fc.weight", {3, 5}, 0, 15}, {"fc.bias", {3}, 16, 3}, {"out.weight", {2, 3}, 19, 6}};
  float first = static_cast<float>(step);
  for (const char* name : {"masters", "moment0", "moment1"}) {
    at::Tensor values = numbered(25, first += 1000);
    values[15] = 0;  // padding
    snapshot.arrays.push_back({name, zero ? at::zeros_like(values) : values});
  }
  at::Tensor mean = numbered(4, 7).to(at::kHalf);
  at::Tensor seen = at::full({}, step, at::kLong);
  snapshot.buffers = {{"norm.mean", zero ? at::zeros_like(mean) : mean},
                      {"norm.seen", zero ? at::zeros_like(seen) : seen}};
  if (!zero) {
    snapshot.state = {{"loss_scale", 65536.0}, {"applied_steps", step}, {"tenth", 0.1}};
    snapshot.config = {{"model", "sample"}, {"lr", 1e-3}};
  }
  return snapshot;
}

inline bool same_bits(const at::Tensor& left, const at::Tensor& right) {
  return left.sizes() == right.sizes() && left.scalar_type() == right.scalar_type() &&
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

/// True when `loaded` holds what `sample(step)` holds.
inline bool same_as_sample(const checkpoint::Snapshot& loaded, std::int64_t step) {
  const checkpoint::Snapshot expected = sample(step);
  bool same = loaded.step == step && loaded.state == expected.state;
  for (std::size_t i = 0; i < expected.arrays.size(); ++i) {
    same = same && same_bits(loaded.arrays[i].values, expected.arrays[i].values);
  }
  for (std::size_t i = 0; i < expected.buffers.size(); ++i) {
    same = same && same_bits(loaded.buffers[i].values, expected.buffers[i].values);
  }
  return same;
}

/// Message and exit code of the Error that `body` raises; code `done` when it raises none.
template <class Body>
std::pair<ExitCode, std::string> error_of(Body body) {
  try {
    body();
  } catch (const Error& problem) {
    return {problem.code(), problem.what()};
  }
  return {ExitCode::done, ""};
}

}  // namespace lockstep::test
