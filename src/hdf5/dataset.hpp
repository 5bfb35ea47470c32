#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "hdf5/scalar.hpp"

namespace lockstep::hdf5 {

using Shape = std::vector<std::int64_t>;

/// "[4000, 1, 28, 28]".
std::string to_text(const Shape& shape);

/// One HDF5 identifier (file, dataset, space, type, attribute, property list): the library counts references
/// itself.
struct IdentifierTraits {
  using Type = std::int64_t;  // hid_t
  static Type empty() { return -1; }
  static void release(Type raw) noexcept;
};
using Identifier = Handle<IdentifierTraits>;

struct WriteState;

/// What files and datasets share: attributes. Getters throw DataError when the attribute is missing or of
/// another kind.
class Object {
 public:
  bool has_attribute(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  std::string string(const std::string& name) const;
  std::vector<double> reals(const std::string& name) const;  ///< one-dimensional, or one scalar

  /// Each makes a new attribute; throws Error with the file's exit code when it exists or cannot be written.
  void set_integer(const std::string& name, std::int64_t value);
  void set_real(const std::string& name, double value);
  void set_string(const std::string& name, const std::string& value);
  void set_reals(const std::string& name, const std::vector<double>& values);

  const std::string& path() const { return origin_.path; }  ///< of the file, as it was opened

 protected:
  struct Origin {
    std::string path;
    std::string dataset;                  // empty for a file
    ExitCode write_code;                  // of errors while writing
    std::shared_ptr<WriteState> written;  // null where the file was opened for reading
  };
  Object(Identifier id, Origin origin) : origin_(std::move(origin)), id_(std::move(id)) {}

  /// Throws when a call of the library failed, or the operating system refused what it wrote.
  void check_write(bool failed, const std::string& problem) const;

  Origin origin_;
  Identifier id_;

 private:
  void write_attribute(const std::string& name, Identifier space, std::int64_t type, const void* value);
};

/// A filter of a chunked dataset, in the order in which it was applied.
struct Filter {
  int id;
  std::string name;
  bool available;  ///< false: this machine has no decoder, built in or as a plug-in
};

enum class Layout { compact, contiguous, chunked };

/// A dataset of numbers. Dimension 0 counts rows. Reads give the file's own type and byte order: HDF5's
/// conversions are slow for half precision and saturate silently, so callers convert. Any thread may call;
/// calls are serialised.
class Dataset : public Object {
 public:
  const std::string& name() const { return origin_.dataset; }
  const Shape& shape() const { return shape_; }
  std::int64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
  std::int64_t row_bytes() const;  ///< bytes of shape[1:]
  Scalar scalar() const { return scalar_; }
  bool big_endian() const { return big_endian_; }
  Layout layout() const { return layout_; }
  const Shape& chunk() const { return chunk_; }  ///< empty unless chunked
  const std::vector<Filter>& filters() const { return filters_; }

  /// Where contiguous data starts, in bytes from the start of the file; -1 for other layouts and where
  /// nothing was stored.
  std::int64_t offset() const;

  /// Whether every element was stored. What was not would read as a fill value.
  bool is_complete() const;

  /// Reads all, or rows [first_row, first_row + rows), into `out` of rows * row_bytes() bytes. Throws
  /// DataError with the first row asked for and the library's words.
  void read(void* out) const;
  void read(std::int64_t first_row, std::int64_t rows, void* out) const;

  /// Writes all, or rows [first_row, first_row + rows), from `data` in the dataset's own type and byte order.
  void write(const void* data);
  void write(std::int64_t first_row, std::int64_t rows, const void* data);

 private:
  friend class File;
  Dataset(Identifier id, Origin origin);
  void read_storage();
  struct Selection {
    Identifier file;
    Identifier memory;
  };
  Selection select(std::int64_t first_row, std::int64_t rows) const;

  Identifier type_;
  Shape shape_;
  Shape chunk_;
  std::vector<Filter> filters_;
  Scalar scalar_ = Scalar::uint8;
  bool big_endian_ = false;
  Layout layout_ = Layout::contiguous;
};

}  // namespace lockstep::hdf5
