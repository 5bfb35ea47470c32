#pragma once

#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "mpi/communicator.hpp"
#include "mpi/job.hpp"

/// Which GPU each rank uses, agreed on over MPI before NCCL starts.
namespace lockstep::comm {

/// What one rank sees of its node.
struct RankView {
  mpi::Node node;
  int visible_devices = 0;
};

/// A rank and the device it uses.
struct Placement {
  std::string host;
  cuda::DeviceInfo device;
};

struct DeviceChoice {
  int device = 0;                     ///< of this rank, among the visible ones
  std::vector<Placement> placements;  ///< of every rank, by rank
  std::string table() const;  ///< one line "rank 0: host n01, GPU 0, NVIDIA H200, 0000:41:00.0" a rank
};

/// The device index of every rank, by rank: the only visible one, else the local rank. Pure.
/// Throws UsageError: `unavailable` when a rank sees none, `configuration` when a node has more ranks than
/// GPUs.
std::vector<int> choose_devices(const std::vector<RankView>& ranks);

/// Throws UsageError (configuration) when two ranks use one GPU (same host and UUID); names both and the GPU.
/// Pure.
void check_distinct(const std::vector<Placement>& placements);

/// Collective: chooses, checks and tells. The caller makes the device current with cuda::set_device.
DeviceChoice assign_devices(const mpi::Communicator& world);

}  // namespace lockstep::comm
