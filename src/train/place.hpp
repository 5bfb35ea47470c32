#pragma once

#include <c10/core/Device.h>

#include <string>

#include "config/settings.hpp"
#include "mpi/communicator.hpp"

namespace lockstep::train {

/// The device that this rank computes on, made current together with a compute stream of its own.
struct Place {
  c10::Device device = c10::Device(c10::kCPU);
  std::string table;      ///< one line a rank: host and device
  bool one_host = false;  ///< all ranks are GPUs of one
  bool cuda() const { return device.is_cuda(); }
};

/// Collective. `automatic` takes the GPUs where every rank sees one, else CPU ranks. Throws UsageError where
/// --device cuda finds no GPU or too few.
Place choose_place(config::DeviceKind kind, const mpi::Communicator& world);

/// What --overlap auto comes to. GPUs of one host sum all gradients at once, after the backward pass: while
/// NCCL holds some multiprocessors, Hopper's products, which want them all, wait for more than the sum takes
/// (perf/README.md).
config::ReduceSettings settle_reduction(config::ReduceSettings settings, const Place& place);

}  // namespace lockstep::train
