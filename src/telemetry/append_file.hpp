#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/handle.hpp"

namespace lockstep::telemetry {

struct AppendDescriptorTraits {
  using Type = int;
  static Type empty() { return -1; }
  static void release(Type raw) noexcept;
};

/// A text file that only grows, whole lines at a time.
class AppendFile {
 public:
  /// Opens or creates. Throws Error(cannot_create or permission).
  explicit AppendFile(std::string path);

  /// Adds `line` and a line end in one write. Throws Error(operating_system) when it could not be written
  /// whole.
  void append(std::string_view line);

  /// Cuts the file to its first `size` bytes. Throws Error(operating_system).
  void cut(std::int64_t size);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Handle<AppendDescriptorTraits> descriptor_;
};

}  // namespace lockstep::telemetry
