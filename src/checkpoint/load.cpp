#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard.hpp"
#include "mpi/job.hpp"

namespace lockstep::checkpoint {

namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> words;
  for (const std::int64_t extent : shape) words.push_back(std::to_string(extent));
  return text("[", join(words, ", "), "]");
}

[[noreturn]] void other_model(const std::string& folder, const std::string& tensor, const std::string& here,
                              const std::string& there) {
  throw DataError(folder, tensor, -1,
                  text("this model has ", here, ", the checkpoint has ", there,
                       ": it is of another model, or learnt from data of another shape"),
                  ExitCode::configuration);
}

/// Name and what stands for its shape.
using Shapes = std::map<std::string, std::string>;

/// Both ways: a tensor that only the checkpoint has would be lost without a word.
void match(const std::string& folder, const Shapes& here, const Shapes& there) {
  for (const auto& [name, shape] : here) {
    const auto found = there.find(name);
    if (found == there.end()) other_model(folder, name, shape, "no such tensor");
    if (found->second != shape) other_model(folder, name, shape, found->second);
  }
  for (const auto& [name, shape] : there) {
    if (!here.count(name)) other_model(folder, name, "no such tensor", shape);
  }
}

Shapes shapes_of(const std::vector<TensorPlace>& layout) {
  Shapes shapes;
  for (const TensorPlace& tensor : layout) shapes.emplace(tensor.name, shape_text(tensor.shape));
  return shapes;
}

void match_layouts(const std::string& folder, const Manifest& manifest, const Snapshot& into) {
  match(folder, shapes_of(into.layout), shapes_of(manifest.layout));
  Shapes here;
  Shapes there;
  for (const NamedTensor& buffer : into.buffers) {
    here.emplace(buffer.name, scalar_name(buffer.values) + " " + shape_text(buffer.values.sizes().vec()));
  }
  for (const BufferRecord& buffer : manifest.buffers) {
    there.emplace(buffer.name, buffer.scalar + " " + shape_text(buffer.shape));
  }
  match(folder, here, there);
  for (const FlatArray& array : into.arrays) {
    if (std::find(manifest.arrays.begin(), manifest.arrays.end(), array.name) != manifest.arrays.end())
      continue;
    throw DataError(folder, array.name, -1,
                    text("is not in the checkpoint, which holds ", join(manifest.arrays, ", "),
                         ": it is of another optimizer"),
                    ExitCode::configuration);
  }
}

}  // namespace

void load(const std::string& folder, Snapshot& into, const mpi::Communicator& world) {
  std::string manifest_text;
  std::string state_text;
  mpi::on_root(world, [&] {  // one rank reads what all must agree on
    const Manifest manifest = read_manifest(folder);
    manifest_text = to_text(manifest);
    for (const FileRecord& file : manifest.files) check_file(folder, file, /*sizes_only=*/true);
    state_text = read_text_file(folder + "/" + kStateName);
  });
  const std::string manifest_path = folder + "/" + kManifestName;
  const Manifest manifest = parse_manifest(manifest_path, world.broadcast_text(manifest_text));
  state_text = world.broadcast_text(state_text);

  mpi::agree(world, [&] { match_layouts(folder, manifest, into); });
  mpi::agree(world, [&] {  // every file is checked once, by one of the ranks
    for (std::size_t i = world.rank(); i < manifest.files.size(); i += world.size()) {
      check_file(folder, manifest.files[i]);
    }
  });
  mpi::agree(world, [&] {
    read_arrays(folder, manifest, into);
    read_buffers(folder, manifest, into, world.rank(), world.size());
    try {
      into.state = nlohmann::json::parse(state_text);
    } catch (const nlohmann::json::exception& problem) {
      throw DataError(folder + "/" + kStateName, "", -1, text("is damaged: ", problem.what()));
    }
    into.step = manifest.step;
  });
}

}  // namespace lockstep::checkpoint
