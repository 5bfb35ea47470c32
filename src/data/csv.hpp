#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// A CSV file of images in memory.
struct CsvImages {
  std::int64_t rows = 0;
  std::vector<std::uint8_t> values;  ///< [rows, values_per_row]
  std::vector<std::int64_t> labels;  ///< [rows]
  std::vector<std::int64_t> lines;   ///< [rows] line numbers, from 1
  bool skipped_header = false;
};

/// Parses lines of `values_per_row` whole numbers in 0..255 and one label, separated by commas; 7 and 7.0 are
/// the same number. Empty lines at the end are nothing; a first line without a number where the label belongs
/// is a header. `label_column` counts from 0, or from the end when negative. `path` is for messages. Throws
/// DataError with the line.
CsvImages parse_csv(std::string_view content, const std::string& path, std::int64_t values_per_row,
                    std::int64_t label_column);

}  // namespace lockstep::data
