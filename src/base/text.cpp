#include "base/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/error.hpp"

namespace lockstep {

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string all;
  for (const auto& word : words) {
    if (!all.empty()) all += separator;
    all += word;
  }
  return all;
}

std::vector<std::string> split(std::string_view line, char separator) {
  std::vector<std::string> words;
  while (!line.empty()) {
    const auto end = line.find(separator);
    words.emplace_back(line.substr(0, end));
    if (end == std::string_view::npos) break;
    line.remove_prefix(end + 1);
    if (line.empty()) words.emplace_back();
  }
  return words;
}

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = word.size() / 2 + 1;
  for (const auto& candidate : known) {
    const auto distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string count_of(std::int64_t number, std::string_view one, std::string_view many) {
  return text(number, " ", number == 1 ? one : many);
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char line[32];
  std::snprintf(line, sizeof line, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return line;
}

std::string format_seconds(double seconds) {
  char line[32];
  const auto whole = static_cast<long>(seconds);
  if (seconds < 60) {
    std::snprintf(line, sizeof line, "%.1f s", seconds);
  } else if (whole < 3600) {
    std::snprintf(line, sizeof line, "%ldm %02lds", whole / 60, whole % 60);
  } else if (whole < 86400) {
    std::snprintf(line, sizeof line, "%ldh %02ldm", whole / 3600, whole % 3600 / 60);
  } else {
    std::snprintf(line, sizeof line, "%ldd %02ldh", whole / 86400, whole % 86400 / 3600);
  }
  return line;
}

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  if (!file || !(all << file.rdbuf() || file.peek() == std::ifstream::traits_type::eof())) {
    throw DataError(path, "", -1, "cannot be read; check the path and its permissions",
                    ExitCode::input_missing);
  }
  return all.str();
}

}  // namespace lockstep
