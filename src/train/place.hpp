#pragma once

#include <c10/core/Device.h>

#include <string>

#include "config/settings.hpp"
#include "mpi/communicator.hpp"

namespace lockstep::train {

/// The device that this rank computes on, made current together with a compute stream of its own.
struct Place {
  c10::Device device = c10::Device(c10::kCPU);
  std::string table;         ///< one line a rank: host and device
  bool hopper_host = false;  ///< all ranks are GPUs of compute capability 9.0 in one host
  bool cuda() const { return device.is_cuda(); }
};

/// Collective. `automatic` takes the GPUs where every rank sees one, else CPU ranks. Throws UsageError where
/// --device cuda finds no GPU or too few.
Place choose_place(config::DeviceKind kind, const mpi::Communicator& world);

/// What --overlap auto comes to. Hopper GPUs of one host sum all gradients at once, after the backward pass:
/// while NCCL holds some multiprocessors, Hopper's products, which want them all, wait for longer than the
/// sum takes (docs/adr/0012-reduction-after-the-backward-pass.md). All others overlap.
config::ReduceSettings settle_reduction(config::ReduceSettings settings, const Place& place);

}  // namespace lockstep::train
