#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/shards.hpp"

namespace lockstep::test {

/// A new empty folder under the system's temporary one, removed with everything in it when it goes out of
/// scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// What make_shards() writes: the value at `index` of row `row` of the whole data set, and its label, row %
/// classes.
std::uint8_t pixel(std::int64_t row, std::int64_t index);
std::int64_t label(std::int64_t row, std::int64_t classes);

/// Writes uint8 shards "shard-00000.h5", ... of the given row counts into `folder`, which is made. Returns
/// their paths.
std::vector<std::string> make_shards(const std::string& folder, const std::vector<std::int64_t>& rows,
                                     const data::Shape& shape = {1, 4, 4}, std::int64_t classes = 10);

/// The token at `position` of the text that make_token_shards() writes.
std::uint32_t token(std::int64_t position, std::int64_t vocabulary);

/// Writes token shards "shard-00000.h5", ... of the given row counts, one text over all of them, into
/// `folder`, which is made. Returns their paths.
std::vector<std::string> make_token_shards(const std::string& folder, const std::vector<std::int64_t>& rows,
                                           std::int64_t sequence_length = 6, std::int64_t vocabulary = 11);

}  // namespace lockstep::test
