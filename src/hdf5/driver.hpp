#pragma once

// Part of the room's inside, like library.hpp.

#include <memory>
#include <string>

#include "hdf5/library.hpp"

namespace lockstep::hdf5 {

/// What the operating system refused while a file was written.
struct WriteState {
  int error = 0;  ///< errno of the first refusal; 0: none
};

/// Makes a new file through a driver that keeps the system's refusals to itself: the library sees every write
/// succeed, and `state` tells the caller. When a write fails (disk full, over quota) HDF5's own driver leaves
/// the file impossible to close: its memory and descriptor stay, and the process may crash later or at its
/// end. Returns an empty identifier when the file cannot be made.
Identifier create_file(const std::string& path, hid_t access, const std::shared_ptr<WriteState>& state);

}  // namespace lockstep::hdf5
