#include "hdf5/file.hpp"

#include <algorithm>
#include <filesystem>

#include "base/text.hpp"
#include "hdf5/driver.hpp"

namespace lockstep::hdf5 {

namespace {

constexpr hsize_t kAlignment = 4096;  // so that data can be mapped, and read past the page cache

Identifier access_list() {
  Identifier access = checked(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
#if H5_VERSION_GE(1, 10, 7)
  check(H5Pset_file_locking(access.get(), 0, 1), "H5Pset_file_locking");
#endif
  return access;
}

herr_t refuse_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) {
  return -1;
}

// Names the first link along `name` that leaves the file, before it is followed.
void refuse_external_links(hid_t file, const std::string& path, const std::string& name) {
  for (std::size_t end = name.find('/', 1);; end = name.find('/', end + 1)) {
    const std::string prefix = name.substr(0, end);
    H5L_info_t info;
    if (H5Lget_info(file, prefix.c_str(), &info, H5P_DEFAULT) < 0) return;  // missing: reported by opening
    if (info.type != H5L_TYPE_HARD && info.type != H5L_TYPE_SOFT) {
      throw DataError(path, name, -1,
                      "is a link into another file; copy its data into the shard (h5copy) and use that");
    }
    if (end == std::string::npos) return;
  }
}

// HDF5's words about a file that does not open, with what to do.
std::string advice(const std::string& path) {
  const std::string words = failure_words();
  if (words.find("truncated file") != std::string::npos) return words + "; copy or pack it again";
  if (words.find("signature not found") != std::string::npos) {
    std::error_code ignored;
    return text("is not an HDF5 file (", std::filesystem::file_size(path, ignored), " bytes; ", words, ")");
  }
  if (words.find("h5clear") != std::string::npos)
    return words + "; its writer was killed or is still at work";
  return words;
}

}  // namespace

File File::open(const std::string& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) {
    throw DataError(path, "", -1, "no such file", ExitCode::input_missing);
  }
  if (std::filesystem::is_directory(status)) throw DataError(path, "", -1, "is a folder, not an HDF5 file");
  const Lock lock;
  const Identifier access = access_list();
  Identifier id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!id) {
    const std::string words = advice(path);
    const bool denied = words.find("Permission denied") != std::string::npos;
    throw DataError(path, "", -1, words, denied ? ExitCode::permission : ExitCode::bad_data);
  }
  return File(std::move(id), {path, "", ExitCode::internal, nullptr});
}

File File::create(const std::string& path, ExitCode on_failure) {
  const Lock lock;
  const Identifier access = access_list();
  check(H5Pset_alignment(access.get(), kAlignment, kAlignment), "H5Pset_alignment");
  const auto state = std::make_shared<WriteState>();
  File file(create_file(path, access.get(), state), {path, "", on_failure, state});
  file.check_write(!file.id_, "cannot be created");
  return file;
}

Object::Origin File::origin_of(const std::string& dataset) const {
  Origin origin = origin_;
  origin.dataset = dataset;
  return origin;
}

bool File::has(const std::string& name) const {
  const Lock lock;
  for (std::size_t end = name.find('/', 1); end != std::string::npos; end = name.find('/', end + 1)) {
    if (H5Lexists(id_.get(), name.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
  }
  return H5Lexists(id_.get(), name.c_str(), H5P_DEFAULT) > 0;
}

Dataset File::dataset(const std::string& name) const {
  const Lock lock;
  if (!has(name)) throw DataError(origin_.path, name, -1, "is missing");
  refuse_external_links(id_.get(), origin_.path, name);
  const Identifier access = checked(H5Pcreate(H5P_DATASET_ACCESS), "H5Pcreate");
  check(H5Pset_chunk_cache(access.get(), H5D_CHUNK_CACHE_NSLOTS_DEFAULT, 0, H5D_CHUNK_CACHE_W0_DEFAULT),
        "H5Pset_chunk_cache");
  // A soft link may still lead through an external one: the library then asks here.
  check(H5Pset_elink_cb(access.get(), refuse_link, nullptr), "H5Pset_elink_cb");
  Identifier id(H5Dopen2(id_.get(), name.c_str(), access.get()));
  if (!id) throw DataError(origin_.path, name, -1, text("cannot be opened: ", failure_words()));
  return Dataset(std::move(id), origin_of(name));
}

Dataset File::create_dataset(const std::string& name, Scalar scalar, const Shape& shape) {
  const Lock lock;
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Identifier space =
      shape.empty() ? checked(H5Screate(H5S_SCALAR), "H5Screate")
                    : checked(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                              "H5Screate_simple");
  const Identifier creation = checked(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
  check(H5Pset_layout(creation.get(), H5D_CONTIGUOUS), "H5Pset_layout");
  check(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
  check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER),
        "H5Pset_fill_time");  // all of it is written anyway
  check(H5Pset_obj_track_times(creation.get(), 0), "H5Pset_obj_track_times");
  const Identifier links = checked(H5Pcreate(H5P_LINK_CREATE), "H5Pcreate");
  check(H5Pset_create_intermediate_group(links.get(), 1), "H5Pset_create_intermediate_group");
  const Identifier type = type_of(scalar);
  Identifier id(
      H5Dcreate2(id_.get(), name.c_str(), type.get(), space.get(), links.get(), creation.get(), H5P_DEFAULT));
  check_write(!id, text("dataset ", name, " cannot be created"));
  return Dataset(std::move(id), origin_of(name));
}

void File::close() {
  const Lock lock;
  if (!id_) return;
  const bool flushed = !origin_.written || H5Fflush(id_.get(), H5F_SCOPE_LOCAL) >= 0;
  check_write(!flushed, "cannot be flushed");
  const bool closed = H5Fclose(id_.detach()) >= 0;
  check_write(!closed, "cannot be closed");
}

}  // namespace lockstep::hdf5
