#pragma once

#include <cstdint>
#include <memory>

#include "nccl/communicator.hpp"

namespace lockstep::nccl {

/// How NCCL knows a piece of memory, best last.
enum class Registration {
  none,       ///< not at all: collectives copy through NCCL's own buffers
  buffer,     ///< as a user buffer: sent from where it lies
  symmetric,  ///< at one offset on every rank: its kernels read and write all ranks' memory, and sum halves
              ///< in float
};

const char* name_of(Registration registration);

struct Memory {
  std::shared_ptr<void> data;
  Registration registration = Registration::none;
};

/// Collective: at least `bytes` (the same on every rank) of zeroed device memory from ncclMemAlloc, 4096-byte
/// aligned, registered in the best way that the devices and their links allow. It keeps the communicator
/// alive, and is deregistered and freed with its last pointer; not inside graph capture, and after all work
/// on it.
Memory allocate(const std::shared_ptr<Communicator>& communicator, std::int64_t bytes);

}  // namespace lockstep::nccl
