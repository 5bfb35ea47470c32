#include "base/file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "base/text.hpp"

namespace lockstep {

namespace {

struct DescriptorTraits {
  using Type = int;
  static Type empty() { return -1; }
  static void release(Type raw) noexcept { ::close(raw); }
};
using Descriptor = Handle<DescriptorTraits>;

[[noreturn]] void fail(ExitCode code, const std::string& path, const char* action) {
  const int reason = errno;
  const bool denied = reason == EACCES || reason == EPERM || reason == EROFS;
  throw Error(denied ? ExitCode::permission : code, text(path, ": ", action, ": ", std::strerror(reason)));
}

}  // namespace

void sync_path(const std::string& path) {
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor) fail(ExitCode::checkpoint_io, path, "cannot be opened to flush it");
  if (::fsync(descriptor.get()) != 0) fail(ExitCode::checkpoint_io, path, "cannot be flushed to the disk");
}

void rename_durably(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(ExitCode::checkpoint_io, to, "cannot be put in place");
  sync_path(std::filesystem::absolute(to).parent_path().string());
}

void write_file_atomically(const std::string& path, std::string_view content) {
  const std::string partial = path + ".partial";
  {
    Descriptor descriptor(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!descriptor) fail(ExitCode::cannot_create, partial, "cannot be created");
    while (!content.empty()) {
      const ssize_t written = ::write(descriptor.get(), content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(ExitCode::checkpoint_io, partial, "cannot be written");
      content.remove_prefix(static_cast<std::size_t>(written));
    }
    if (::fsync(descriptor.get()) != 0)
      fail(ExitCode::checkpoint_io, partial, "cannot be flushed to the disk");
  }
  rename_durably(partial, path);
}

void make_folder(const std::string& path) {
  std::error_code reason;
  std::filesystem::create_directories(path, reason);
  if (!std::filesystem::is_directory(path)) {
    const bool denied = reason == std::errc::permission_denied || reason == std::errc::read_only_file_system;
    throw Error(denied ? ExitCode::permission : ExitCode::cannot_create,
                text(path, ": cannot be created as a folder: ",
                     reason ? reason.message() : "a file of this name exists"));
  }
}

}  // namespace lockstep
