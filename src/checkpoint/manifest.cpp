#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"

namespace lockstep::checkpoint {

namespace {

using nlohmann::json;

constexpr const char* kFormat = "lockstep checkpoint";

std::string padded(std::int64_t value, std::size_t digits) {
  const std::string word = std::to_string(value);
  return std::string(word.size() < digits ? digits - word.size() : 0, '0') + word;
}

/// Only names that stay inside their folder.
bool plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) || letter == '.' || letter == '_' || letter == '-';
  });
}

std::string checksum_of(json document) {
  document.erase("checksum");
  return hex(hash_text(document.dump()));
}

Manifest from_json(const json& document) {
  Manifest manifest;
  document.at("step").get_to(manifest.step);
  document.at("world_size").get_to(manifest.world_size);
  document.at("flat_size").get_to(manifest.flat_size);
  document.at("created").get_to(manifest.created);
  document.at("arrays").get_to(manifest.arrays);
  for (const json& entry : document.at("tensors")) {
    manifest.layout.push_back({entry.at("name"), entry.at("shape"), entry.at("begin"), entry.at("count")});
  }
  for (const json& entry : document.at("buffers")) {
    manifest.buffers.push_back({entry.at("name"), entry.at("shape"), entry.at("scalar")});
  }
  for (const json& entry : document.at("files")) {
    manifest.files.push_back({entry.at("name"), entry.at("bytes"), entry.at("xxh3")});
  }
  manifest.config = document.at("config");
  document.at("config_hash").get_to(manifest.config_hash);
  return manifest;
}

void check_tensors(const std::string& path, const Manifest& manifest) {
  std::set<std::string> names;
  for (const TensorPlace& tensor : manifest.layout) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) {
      const bool fits = extent >= 0 && (elements == 0 || extent <= manifest.flat_size / elements);
      if (!fits)
        throw DataError(path, "", -1, text("tensor ", tensor.name, " is larger than the flat space"));
      elements *= extent;
    }
    const bool inside = tensor.begin >= 0 && tensor.begin <= manifest.flat_size - elements;
    if (elements != tensor.count || !inside) {
      throw DataError(path, "", -1,
                      text("tensor ", tensor.name, " of ", tensor.count, " elements from ", tensor.begin,
                           " on does not fit its shape or the flat space of ", manifest.flat_size));
    }
    if (!names.insert(tensor.name).second)
      throw DataError(path, "", -1, text("names tensor ", tensor.name, " twice"));
  }
}

void check_files(const std::string& path, const Manifest& manifest) {
  std::set<std::string> names;
  for (const FileRecord& file : manifest.files) {
    if (!plain_name(file.name))
      throw DataError(path, "", -1, text("names a file outside its folder: ", file.name));
    names.insert(file.name);
  }
  std::vector<std::string> needed{kStateName};
  for (int rank = 0; rank < manifest.world_size; ++rank)
    needed.push_back(shard_name(rank, manifest.world_size));
  for (const std::string& name : needed) {
    if (!names.count(name)) throw DataError(path, "", -1, text("does not name ", name));
  }
}

}  // namespace

FlatRange range_of(std::int64_t flat_size, int rank, int world_size) {
  return {flat_size * rank / world_size, flat_size * (rank + 1) / world_size};
}

std::string shard_name(int rank, int world_size) {
  return text("shard-", padded(rank, 5), "-of-", padded(world_size, 5), ".h5");
}

std::int64_t Manifest::total_bytes() const {
  std::int64_t total = 0;
  for (const FileRecord& file : files) total += file.bytes;
  return total;
}

std::string to_text(const Manifest& manifest) {
  json document{{"format", kFormat},
                {"version", kFormatVersion},
                {"step", manifest.step},
                {"world_size", manifest.world_size},
                {"flat_size", manifest.flat_size},
                {"created", manifest.created},
                {"arrays", manifest.arrays},
                {"tensors", json::array()},
                {"buffers", json::array()},
                {"files", json::array()},
                {"config", manifest.config},
                {"config_hash", manifest.config_hash}};
  for (const TensorPlace& tensor : manifest.layout) {
    document["tensors"].push_back(
        {{"name", tensor.name}, {"shape", tensor.shape}, {"begin", tensor.begin}, {"count", tensor.count}});
  }
  for (const BufferRecord& buffer : manifest.buffers) {
    document["buffers"].push_back(
        {{"name", buffer.name}, {"shape", buffer.shape}, {"scalar", buffer.scalar}});
  }
  for (const FileRecord& file : manifest.files) {
    document["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  }
  document["checksum"] = checksum_of(document);
  return document.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& path, const std::string& words) {
  try {
    const json document = json::parse(words);
    if (document.at("format") != kFormat)
      throw DataError(path, "", -1, "is no manifest of a lockstep checkpoint");
    const int version = document.at("version");
    if (version != kFormatVersion) {
      throw DataError(path, "", -1,
                      text("is of format version ", version, "; this lockstep reads ", kFormatVersion));
    }
    const std::string saved = document.at("checksum");
    if (checksum_of(document) != saved) {
      throw DataError(path, "", -1,
                      text("has checksum ", checksum_of(document), ", but ", saved, " when it was saved"));
    }
    Manifest manifest = from_json(document);
    if (manifest.step < 0 || manifest.world_size < 1 || manifest.flat_size < 0) {
      throw DataError(path, "", -1, "has a negative step, size or number of ranks");
    }
    check_tensors(path, manifest);
    check_files(path, manifest);
    return manifest;
  } catch (const json::exception& problem) {
    throw DataError(path, "", -1, text("is damaged: ", problem.what()));
  }
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  if (!std::filesystem::exists(path)) {
    throw DataError(path, "", -1, "is missing, so this is no complete checkpoint", ExitCode::input_missing);
  }
  return parse_manifest(path, read_text_file(path));
}

}  // namespace lockstep::checkpoint
