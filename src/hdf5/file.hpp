#pragma once

#include <string>

#include "hdf5/dataset.hpp"

namespace lockstep::hdf5 {

/// An HDF5 file, move-only. Every call into the library is made under one process-wide lock, so that a build
/// without thread safety works too. Data of other files is never reached: external links, external storage
/// and virtual datasets are refused, since a missing source would read as fill values.
class File : public Object {
 public:
  /// Opens for reading, without file locks (network file systems often have none). Throws DataError:
  /// input_missing when there is no such file, bad_data with the library's deepest reason when it is not
  /// HDF5, cut off or still being written.
  static File open(const std::string& path);

  /// Makes a new file that must not exist. Files with the same content are byte-identical: no times are
  /// stored. Errors while creating and writing are DataErrors with `on_failure`; after one (disk full) this
  /// file is worth nothing, the process and other files are well. A write may be reported by close() only, so
  /// call it.
  static File create(const std::string& path, ExitCode on_failure = ExitCode::cannot_create);

  /// True when `name` ("inputs", "group/inputs") leads to something in this file.
  bool has(const std::string& name) const;

  /// Opens a dataset. HDF5's own chunk cache is off: callers read whole row blocks. Throws DataError when it
  /// is missing, holds no plain numbers, or its data lies in another file.
  Dataset dataset(const std::string& name) const;

  /// Makes a contiguous dataset, its space allocated at once, aligned to 4 KiB when it has that size. Groups
  /// in `name` are made as needed. A shape with a zero is allowed and holds nothing.
  Dataset create_dataset(const std::string& name, Scalar scalar, const Shape& shape);

  /// Flushes to the operating system and closes, and throws where the destructor would be silent. Datasets
  /// first: one that is still open keeps the file open.
  void close();

 private:
  File(Identifier id, Origin origin) : Object(std::move(id), std::move(origin)) {}
  Origin origin_of(const std::string& dataset) const;
};

/// Whether the HDF5 library itself was built thread-safe.
bool library_is_threadsafe();

/// "1.10.8".
std::string library_version();

}  // namespace lockstep::hdf5
