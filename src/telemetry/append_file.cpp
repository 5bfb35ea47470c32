#include "telemetry/append_file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::telemetry {

void AppendDescriptorTraits::release(Type raw) noexcept {
  ::close(raw);
}

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  *descriptor_.out() = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_) return;
  const int reason = errno;
  const bool denied = reason == EACCES || reason == EPERM || reason == EROFS;
  throw Error(denied ? ExitCode::permission : ExitCode::cannot_create,
              text(path_, ": cannot be opened for writing: ", std::strerror(reason)));
}

void AppendFile::append(std::string_view line) {
  const std::string whole = text(line, "\n");
  std::string_view rest = whole;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw Error(ExitCode::operating_system, text(path_, ": cannot be written: ", std::strerror(errno)));
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AppendFile::cut(std::int64_t size) {
  if (::ftruncate(descriptor_.get(), size) == 0) return;
  throw Error(ExitCode::operating_system, text(path_, ": cannot be shortened: ", std::strerror(errno)));
}

}  // namespace lockstep::telemetry
