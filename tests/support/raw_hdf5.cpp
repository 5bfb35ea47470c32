#include "support/raw_hdf5.hpp"

#include <filesystem>
#include <vector>

#include <hdf5.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"
#include "hdf5/library.hpp"

namespace lockstep::test {

namespace {

using hdf5::check;
using hdf5::checked;
using hdf5::Identifier;

std::int64_t decoded_chunks = 0;

std::size_t count_decoding(unsigned flags, std::size_t, const unsigned*, std::size_t bytes, std::size_t*,
                           void**) {
  if ((flags & H5Z_FLAG_REVERSE) != 0) ++decoded_chunks;
  return bytes;
}

Identifier open_or_create(const std::string& path) {
  if (std::filesystem::exists(path))
    return checked(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "H5Fopen");
  return checked(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), "H5Fcreate");
}

Identifier space_of(const hdf5::Shape& shape) {
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  return checked(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                 "H5Screate_simple");
}

Identifier space_of(std::int64_t rows) {
  return space_of(hdf5::Shape{rows});
}

void create(const std::string& path, const std::string& name, hid_t type, hid_t space, hid_t creation) {
  const Identifier file = open_or_create(path);
  checked(H5Dcreate2(file.get(), name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT),
          "H5Dcreate2");
}

}  // namespace

CountingFilter::CountingFilter() {
  decoded_chunks = 0;
  const H5Z_class2_t filter{H5Z_CLASS_T_VERS, kId, 1, 1, "counting", nullptr, nullptr, count_decoding};
  check(H5Zregister(&filter), "H5Zregister");
}

CountingFilter::~CountingFilter() {
  H5Zunregister(kId);
}

std::int64_t CountingFilter::decoded() const {
  return decoded_chunks;
}

void add_dataset(const std::string& path, const RawDataset& dataset, const void* data) {
  const Identifier file = open_or_create(path);
  const Identifier creation = checked(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
  if (!dataset.chunk.empty()) {
    const std::vector<hsize_t> chunk(dataset.chunk.begin(), dataset.chunk.end());
    check(H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data()), "H5Pset_chunk");
  }
  if (dataset.gzip > 0)
    check(H5Pset_deflate(creation.get(), static_cast<unsigned>(dataset.gzip)), "H5Pset_deflate");
  if (dataset.counted) {
    check(H5Pset_filter(creation.get(), CountingFilter::kId, H5Z_FLAG_MANDATORY, 0, nullptr),
          "H5Pset_filter");
  }
  const Identifier type = hdf5::type_of(dataset.scalar);
  if (dataset.big_endian) check(H5Tset_order(type.get(), H5T_ORDER_BE), "H5Tset_order");
  const Identifier space = space_of(dataset.shape);
  const Identifier id = checked(H5Dcreate2(file.get(), dataset.name.c_str(), type.get(), space.get(),
                                           H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                                "H5Dcreate2");
  if (data != nullptr) check(H5Dwrite(id.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), "H5Dwrite");
}

void add_external_link(const std::string& path, const std::string& name, const std::string& file,
                       const std::string& target) {
  const Identifier at = open_or_create(path);
  check(H5Lcreate_external(file.c_str(), target.c_str(), at.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
        "H5Lcreate_external");
}

void add_soft_link(const std::string& path, const std::string& name, const std::string& target) {
  const Identifier at = open_or_create(path);
  check(H5Lcreate_soft(target.c_str(), at.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), "H5Lcreate_soft");
}

void add_virtual(const std::string& path, const std::string& name, std::int64_t rows, const std::string& file,
                 const std::string& target) {
  const Identifier creation = checked(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
  const Identifier space = space_of(rows);
  check(H5Pset_virtual(creation.get(), space.get(), file.c_str(), target.c_str(), space.get()),
        "H5Pset_virtual");
  create(path, name, H5T_STD_U8LE, space.get(), creation.get());
}

void add_external_storage(const std::string& path, const std::string& name, std::int64_t rows,
                          const std::string& file) {
  const Identifier creation = checked(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
  check(H5Pset_external(creation.get(), file.c_str(), 0, static_cast<hsize_t>(rows)), "H5Pset_external");
  create(path, name, H5T_STD_U8LE, space_of(rows).get(), creation.get());
}

void add_strings(const std::string& path, const std::string& name, std::int64_t rows) {
  const Identifier type = checked(H5Tcopy(H5T_C_S1), "H5Tcopy");
  check(H5Tset_size(type.get(), H5T_VARIABLE), "H5Tset_size");
  create(path, name, type.get(), space_of(rows).get(), H5P_DEFAULT);
}

void add_integer_attribute(const std::string& path, const std::string& name, std::int64_t value) {
  const Identifier file = open_or_create(path);
  const Identifier space = checked(H5Screate(H5S_SCALAR), "H5Screate");
  const Identifier attribute =
      checked(H5Acreate2(file.get(), name.c_str(), H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
              "H5Acreate2");
  check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), "H5Awrite");
}

void add_string_attribute(const std::string& path, const std::string& name, const std::string& value) {
  const Identifier file = open_or_create(path);
  const Identifier type = checked(H5Tcopy(H5T_C_S1), "H5Tcopy");  // of varying length, as h5py writes strings
  check(H5Tset_size(type.get(), H5T_VARIABLE), "H5Tset_size");
  const Identifier space = checked(H5Screate(H5S_SCALAR), "H5Screate");
  const Identifier attribute = checked(
      H5Acreate2(file.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), "H5Acreate2");
  const char* words = value.c_str();
  check(H5Awrite(attribute.get(), type.get(), &words), "H5Awrite");
}

void leave_unfinished(const std::string& path, const std::string& flushed, const std::string& lost,
                      std::int64_t rows, bool newest_format) {
  const pid_t child = ::fork();
  if (child == 0) {  // no destructor may run here: it would finish the file
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (newest_format) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access);
    const hsize_t extent = static_cast<hsize_t>(rows);
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(rows));
    for (const std::string* name : {&flushed, &lost}) {
      const hid_t id =
          H5Dcreate2(file, name->c_str(), H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      H5Dwrite(id, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data());
      if (name == &flushed) H5Fflush(file, H5F_SCOPE_GLOBAL);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

}  // namespace lockstep::test
