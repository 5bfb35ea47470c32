#include "hdf5/driver.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <fcntl.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 14, 0)
#include <H5FDdevelop.h>
#endif

namespace lockstep::hdf5 {

namespace {

struct DriverInfo {
  const std::shared_ptr<WriteState>* state;  // read while the file is being opened only
};

// H5FD_t comes first: the library sees a pointer to it.
struct DriverFile {
  H5FD_t common{};
  int descriptor = -1;
  haddr_t allocated = 0;  // the library's "end of allocation"
  haddr_t size = 0;
  std::shared_ptr<WriteState> state;

  void refuse(int reason) {
    if (state->error == 0) state->error = reason;
  }
};

DriverFile& from(H5FD_t* file) {
  return *reinterpret_cast<DriverFile*>(file);
}
const DriverFile& from(const H5FD_t* file) {
  return *reinterpret_cast<const DriverFile*>(file);
}

H5FD_t* open(const char* path, unsigned, hid_t access, haddr_t) {
  const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(access));
  const int descriptor = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    (*info->state)->error = errno;
    return nullptr;
  }
  auto* file = new DriverFile;
  file->descriptor = descriptor;
  file->state = *info->state;
  return &file->common;
}

herr_t close(H5FD_t* raw) {
  DriverFile& file = from(raw);
  if (::close(file.descriptor) != 0) file.refuse(errno);  // network file systems report lost writes here
  delete &file;
  return 0;
}

// As the library's default driver answers, so that files are laid out as those are.
herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t get_allocated(const H5FD_t* file, H5FD_mem_t) {
  return from(file).allocated;
}

herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  from(file).allocated = end;
  return 0;
}

haddr_t get_size(const H5FD_t* file, H5FD_mem_t) {
  return from(file).size;
}

herr_t read(H5FD_t* raw, H5FD_mem_t, hid_t, haddr_t start, size_t bytes, void* out) {
  DriverFile& file = from(raw);
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(file.descriptor, to, bytes, static_cast<off_t>(start));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) file.refuse(errno);
    if (got <= 0) break;
    to += got;
    start += static_cast<haddr_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  std::memset(to, 0, bytes);  // what lies beyond the end reads as zeros, as the library expects
  return 0;
}

herr_t write(H5FD_t* raw, H5FD_mem_t, hid_t, haddr_t start, size_t bytes, const void* data) {
  DriverFile& file = from(raw);
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0 && file.state->error == 0) {
    const ssize_t written = ::pwrite(file.descriptor, next, bytes, static_cast<off_t>(start));
    if (written < 0) {
      if (errno != EINTR) file.refuse(errno);
      continue;
    }
    next += written;
    start += static_cast<haddr_t>(written);
    bytes -= static_cast<size_t>(written);
    file.size = std::max(file.size, start);
  }
  file.size = std::max(file.size, start + bytes);  // what the library believes
  return 0;
}

herr_t truncate(H5FD_t* raw, hid_t, hbool_t) {
  DriverFile& file = from(raw);
  if (file.size == file.allocated) return 0;
  if (::ftruncate(file.descriptor, static_cast<off_t>(file.allocated)) != 0) file.refuse(errno);
  file.size = file.allocated;
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t driver{};  // members by name, since their order differs between versions of the library
#if H5_VERSION_GE(1, 14, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(H5_VFD_RESERVED + 7);
#endif
  driver.name = "lockstep";
  driver.maxaddr = (haddr_t{1} << 62) - 1;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(DriverInfo);
  driver.open = open;
  driver.close = close;
  driver.query = query;
  driver.get_eoa = get_allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = get_size;
  driver.read = read;
  driver.write = write;
  driver.truncate = truncate;
  constexpr H5FD_mem_t kFreeLists[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(kFreeLists), std::end(kFreeLists), driver.fl_map);
  return driver;
}

}  // namespace

Identifier create_file(const std::string& path, hid_t access, const std::shared_ptr<WriteState>& state) {
  const H5FD_class_t driver = driver_class();
  const Identifier id = checked(H5FDregister(&driver), "H5FDregister");  // the file keeps its own reference
  const DriverInfo info{&state};
  check(H5Pset_driver(access, id.get(), &info), "H5Pset_driver");
  return Identifier(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access));
}

}  // namespace lockstep::hdf5
