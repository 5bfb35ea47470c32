#pragma once

// The room's own header: the only one that names HDF5's types. Other rooms include file.hpp and dataset.hpp.

#include <mutex>
#include <string>

#include <hdf5.h>

#include "hdf5/dataset.hpp"

namespace lockstep::hdf5 {

static_assert(sizeof(hid_t) == sizeof(IdentifierTraits::Type), "HDF5 before 1.10 had 32-bit identifiers");

/// Held around every call into the library. Recursive, since releasing an identifier takes it too. The first
/// one in a thread switches off the library's own printing, which is a setting of each thread.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

/// The library's own words about the last failure in this thread, the deepest first, as "cause; what it
/// broke".
std::string failure_words();

/// Takes a new identifier; throws ApiError with the call's text when it is negative.
Identifier checked(hid_t id, const char* call, SourceLine where = SourceLine::here());
void check(herr_t status, const char* call, SourceLine where = SourceLine::here());

/// The type of one element as a new identifier, little-endian.
Identifier type_of(Scalar scalar);

/// The element type of a dataset. Throws DataError naming what it holds instead of numbers.
Scalar scalar_of(hid_t type, const std::string& path, const std::string& dataset);

}  // namespace lockstep::hdf5
