#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "checkpoint/manifest.hpp"

namespace lockstep::checkpoint {

namespace {

constexpr std::size_t kReadBytes = 4 << 20;

struct DescriptorTraits {
  using Type = int;
  static Type empty() { return -1; }
  static void release(Type raw) noexcept { ::close(raw); }
};
using Descriptor = Handle<DescriptorTraits>;

/// A regular file of the folder itself: a link could lead a reader of somebody else's checkpoint anywhere.
Descriptor open_regular(const std::string& path, struct stat* status, ExitCode on_failure) {
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!descriptor) {
    const int reason = errno;
    throw DataError(path, "", -1,
                    reason == ENOENT ? "is missing" : text("cannot be opened: ", std::strerror(reason)),
                    on_failure);
  }
  if (::fstat(descriptor.get(), status) != 0 || !S_ISREG(status->st_mode)) {
    throw DataError(path, "", -1, "is no regular file", on_failure);
  }
  return descriptor;
}

}  // namespace

FileRecord measure(const std::string& folder, const std::string& name, ExitCode on_failure) {
  const std::string path = folder + "/" + name;
  struct stat status {};
  const Descriptor descriptor = open_regular(path, &status, on_failure);
  std::vector<unsigned char> block(kReadBytes);
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  FileRecord record{name, 0, ""};
  for (;;) {
    const ssize_t got = ::read(descriptor.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DataError(path, "", -1, text("cannot be read: ", std::strerror(errno)), on_failure);
    if (got == 0) break;
    XXH3_64bits_update(&hash, block.data(), static_cast<std::size_t>(got));
    record.bytes += got;
  }
  record.xxh3 = hex(XXH3_64bits_digest(&hash));
  return record;
}

void check_file(const std::string& folder, const FileRecord& expected, bool sizes_only) {
  const std::string path = folder + "/" + expected.name;
  struct stat status {};
  open_regular(path, &status, ExitCode::bad_data);
  if (status.st_size != expected.bytes) {
    throw DataError(path, "", -1,
                    text("has ", status.st_size, " bytes, but ", expected.bytes, " when it was saved"));
  }
  if (sizes_only) return;
  const FileRecord found = measure(folder, expected.name);
  if (found.xxh3 != expected.xxh3) {
    throw DataError(path, "", -1,
                    text("has checksum ", found.xxh3, ", but ", expected.xxh3, " when it was saved"));
  }
}

}  // namespace lockstep::checkpoint
