#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Joins its arguments into one string, as `<<` would print them.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Joins `words` with `separator` between them.
std::string join(const std::vector<std::string>& words, std::string_view separator);

/// Splits at every `separator`; an empty string gives no words.
std::vector<std::string> split(std::string_view line, char separator);

/// The word of `known` with the smallest edit distance to `word`; empty when none is closer than half its
/// length.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// "1 rank", "2 ranks".
std::string count_of(std::int64_t number, std::string_view one, std::string_view many);

/// "1.50 GiB", "640 B".
std::string format_bytes(std::int64_t bytes);

/// "3d 04h", "1h 02m", "2m 05s", "7.3 s".
std::string format_seconds(double seconds);

/// Whole text of a file; throws DataError with `input_missing` when it cannot be read.
std::string read_text_file(const std::string& path);

}  // namespace lockstep
