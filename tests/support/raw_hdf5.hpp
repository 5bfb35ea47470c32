#pragma once

#include <cstdint>
#include <string>

#include "hdf5/dataset.hpp"

/// HDF5 files that lockstep itself never writes, made with the C API.
namespace lockstep::test {

/// A dataset as somebody else's program may have stored it.
struct RawDataset {
  std::string name;
  hdf5::Scalar scalar = hdf5::Scalar::uint8;
  hdf5::Shape shape;
  bool big_endian = false;
  hdf5::Shape chunk = {};  ///< empty: contiguous
  int gzip = 0;            ///< level; 0: none
  bool counted = false;    ///< passes through a filter that counts how often a chunk is decoded
};

/// The filter of `counted`, known to the library only while one of these lives.
class CountingFilter {
 public:
  CountingFilter();
  ~CountingFilter();
  CountingFilter(const CountingFilter&) = delete;
  CountingFilter& operator=(const CountingFilter&) = delete;
  static constexpr int kId = 300;
  std::int64_t decoded() const;  ///< chunks since construction
};

/// Makes `path` when it is not there and adds a dataset with `data` in its type and byte order; null: nothing
/// is written.
void add_dataset(const std::string& path, const RawDataset& dataset, const void* data);
void add_external_link(const std::string& path, const std::string& name, const std::string& file,
                       const std::string& target);
void add_soft_link(const std::string& path, const std::string& name, const std::string& target);
/// uint8 [rows] mapped onto the dataset `target` of `file`.
void add_virtual(const std::string& path, const std::string& name, std::int64_t rows, const std::string& file,
                 const std::string& target);
/// uint8 [rows] whose bytes lie in `file`.
void add_external_storage(const std::string& path, const std::string& name, std::int64_t rows,
                          const std::string& file);
/// Strings of varying length, [rows].
void add_strings(const std::string& path, const std::string& name, std::int64_t rows);
void add_integer_attribute(const std::string& path, const std::string& name, std::int64_t value);
void add_string_attribute(const std::string& path, const std::string& name, const std::string& value);

/// What a writer leaves that was killed after a flush: uint8 datasets `flushed`, and `lost` that it had not
/// flushed. In the newest format the file is marked as being written.
void leave_unfinished(const std::string& path, const std::string& flushed, const std::string& lost,
                      std::int64_t rows, bool newest_format);

}  // namespace lockstep::test
