#include "train/algorithms.hpp"

#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "mpi/job.hpp"
#include "ops/fused_library.hpp"

namespace lockstep::train {

namespace {

using cuda::Choices;

nlohmann::json to_json(const Choices& choices) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [shape, chosen] : choices) {
    nlohmann::json words = nlohmann::json::array();
    for (const auto word : chosen.algorithm) words.push_back(hex(word));
    all.push_back({{"rows", shape.rows},
                   {"columns", shape.columns},
                   {"inner", shape.inner},
                   {"left_transposed", shape.left_transposed},
                   {"right_transposed", shape.right_transposed},
                   {"adds", shape.adds},
                   {"number", static_cast<int>(shape.number)},
                   {"epilogue", static_cast<int>(shape.epilogue)},
                   {"algorithm", words},
                   {"microseconds", chosen.seconds * 1e6}});
  }
  return {{"made_for", cuda::Matmul::identity()}, {"products", all}};
}

Choices from_json(const nlohmann::json& stored) {
  Choices choices;
  for (const auto& product : stored.at("products")) {
    cuda::MatmulShape shape;
    shape.rows = product.at("rows").get<std::int64_t>();
    shape.columns = product.at("columns").get<std::int64_t>();
    shape.inner = product.at("inner").get<std::int64_t>();
    shape.left_transposed = product.at("left_transposed").get<bool>();
    shape.right_transposed = product.at("right_transposed").get<bool>();
    shape.adds = product.at("adds").get<bool>();
    shape.number = static_cast<cuda::Number>(product.at("number").get<int>());
    shape.epilogue = static_cast<cuda::Epilogue>(product.at("epilogue").get<int>());
    cuda::ChosenAlgorithm chosen;
    for (std::size_t i = 0; i < chosen.algorithm.size(); ++i)
      chosen.algorithm[i] = std::stoull(product.at("algorithm").at(i).get<std::string>(), nullptr, 16);
    chosen.seconds = product.at("microseconds").get<double>() * 1e-6;
    choices[shape] = chosen;
  }
  return choices;
}

/// Where this user's choices for this library and device are kept; empty where there is no home.
std::string cache_file() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::string folder;
  if (cache != nullptr && *cache != '\0') {
    folder = cache;
  } else if (home != nullptr && *home != '\0') {
    folder = std::string(home) + "/.cache";
  } else {
    return {};
  }
  return text(folder, "/lockstep/algorithms-", hex(hash_text(cuda::Matmul::identity())), ".json");
}

/// The choices that a file holds; none where it is missing, of another library or device, or damaged: then
/// they are made again.
Choices read(const std::string& path) {
  if (path.empty() || !std::filesystem::exists(path)) return {};
  try {
    const auto stored = nlohmann::json::parse(read_text_file(path));
    if (stored.at("made_for").get<std::string>() == cuda::Matmul::identity()) return from_json(stored);
    log::info(text(path, " was made for ", stored.at("made_for").get<std::string>(), ", this is ",
                   cuda::Matmul::identity(),
                   "; algorithms are chosen again, and results differ in rounding"));
  } catch (const std::exception& error) {
    log::info(text(path, " cannot be used (", error.what(), "); algorithms are chosen again"));
  }
  return {};
}

void write(const std::string& path, const Choices& choices) {
  if (path.empty()) return;
  try {
    make_folder(std::filesystem::path(path).parent_path().string());
    write_file_atomically(path, to_json(choices).dump(1) + "\n");
  } catch (const Error& error) {
    log::info(text("algorithms were not kept for later runs: ", error.what()));
  }
}

}  // namespace

void settle_algorithms(Step& step, const std::string& run_folder, const mpi::Communicator& world) {
  const std::string in_run = run_folder + "/algorithms.json";
  std::string words;
  bool of_this_run = false;
  mpi::on_root(world, [&] {
    const Choices of_run = read(in_run);
    of_this_run = !of_run.empty();
    words = to_json(of_this_run ? of_run : read(cache_file())).dump();
  });
  const auto share = [&] {
    words = world.broadcast_text(std::move(words));
    ops::matmul().choose(from_json(nlohmann::json::parse(words)));
  };
  share();
  if (!world.broadcast_value(of_this_run)) {
    step.rehearse();
    words = to_json(ops::matmul().choices()).dump();
    share();
    mpi::on_root(world, [&] {
      const Choices settled = from_json(nlohmann::json::parse(words));
      write(in_run, settled);
      Choices kept = settled;
      kept.merge(read(cache_file()));
      write(cache_file(), kept);
    });
  }
  ops::matmul().freeze();
}

}  // namespace lockstep::train
