#include "support/shards.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "data/pack.hpp"

namespace lockstep::test {

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) throw Error(ExitCode::cannot_create, path_ + " cannot be made");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::uint8_t pixel(std::int64_t row, std::int64_t index) {
  return static_cast<std::uint8_t>(mix_all(row, index) & 255);
}

std::int64_t label(std::int64_t row, std::int64_t classes) {
  return row % classes;
}

std::vector<std::string> make_shards(const std::string& folder, const std::vector<std::int64_t>& rows,
                                     const data::Shape& shape, std::int64_t classes) {
  make_folder(folder);
  std::int64_t width = 1;
  for (const std::int64_t extent : shape) width *= extent;
  std::vector<std::string> paths;
  std::int64_t row = 0;
  for (const std::int64_t count : rows) {
    std::vector<std::uint8_t> inputs;
    std::vector<std::int64_t> targets;
    for (const std::int64_t end = row + count; row < end; ++row) {
      for (std::int64_t i = 0; i < width; ++i) inputs.push_back(pixel(row, i));
      targets.push_back(label(row, classes));
    }
    char name[32];
    std::snprintf(name, sizeof name, "/shard-%05zu.h5", paths.size());
    paths.push_back(folder + name);
    data::write_shard(paths.back(),
                      {shape, data::Scalar::uint8, count, inputs.data(), targets.data(), classes, {}, {}});
  }
  return paths;
}

std::uint32_t token(std::int64_t position, std::int64_t vocabulary) {
  return static_cast<std::uint32_t>(mix_all(position, 5) % static_cast<std::uint64_t>(vocabulary));
}

std::vector<std::string> make_token_shards(const std::string& folder, const std::vector<std::int64_t>& rows,
                                           std::int64_t sequence_length, std::int64_t vocabulary) {
  make_folder(folder);
  std::vector<std::string> paths;
  std::int64_t position = 0;
  for (const std::int64_t count : rows) {
    std::vector<std::uint32_t> tokens;
    for (std::int64_t i = 0; i <= count * sequence_length; ++i)
      tokens.push_back(token(position + i, vocabulary));
    position += count * sequence_length;
    char name[32];
    std::snprintf(name, sizeof name, "/shard-%05zu.h5", paths.size());
    paths.push_back(folder + name);
    data::write_token_shard(paths.back(), {count, sequence_length, tokens, vocabulary, ""});
  }
  return paths;
}

}  // namespace lockstep::test
