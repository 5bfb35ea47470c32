#pragma once

#include <string>

namespace lockstep::data {

/// Whole content of a file, inflated when it begins as a gzip file does (several members in a row are one
/// text). Throws DataError: input_missing when it cannot be read, bad_data when a member is damaged or cut
/// off.
std::string read_plain_or_gzip(const std::string& path);

}  // namespace lockstep::data
