#include "train/stored_run.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/stored.hpp"
#include "mpi/job.hpp"

namespace lockstep::train {

namespace fs = std::filesystem;

StoredRun find_stored_run(const std::string& run_folder, const std::string& checkpoint,
                          const mpi::Communicator& world) {
  const std::string stored = run_folder + "/config.json";
  std::string config_text;
  mpi::on_root(world, [&] { config_text = read_text_file(stored); });
  StoredRun run{config::train_settings_from_json(world.broadcast_text(config_text), stored), checkpoint};
  if (checkpoint != "latest") return run;
  const auto latest = checkpoint::find_latest(run_folder, world);
  if (!latest) {
    DataError error(run_folder, "", -1, "holds no checkpoint yet", ExitCode::input_missing);
    error.mark_on_all_ranks();
    throw error;
  }
  run.checkpoint = latest->folder;
  return run;
}

nlohmann::json shape_of(const data::DataSet& data) {
  return {{"tokens", data.tokens()}, {"input_shape", data.input_shape()}, {"classes", data.classes()}};
}

models::ModelRequest stored_request(const StoredRun& run) {
  const std::string path = run.checkpoint + "/" + checkpoint::kStateName;
  try {
    const auto stored = nlohmann::json::parse(read_text_file(path)).at("data");
    models::ModelRequest request;
    request.settings = run.settings.model;
    request.tokens = stored.at("tokens").get<bool>();
    request.input_shape = stored.at("input_shape").get<std::vector<std::int64_t>>();
    request.classes = stored.at("classes").get<std::int64_t>();
    return request;
  } catch (const nlohmann::json::exception& problem) {
    throw DataError(path, "", -1,
                    text("does not say what data the model was made for (", problem.what(),
                         "); it is damaged, or of an older version: train the run on by one step"));
  }
}

std::optional<data::Tokenizer> tokenizer_beside(const data::DataSet& data, const std::string& path) {
  if (!data.tokens()) return std::nullopt;
  const fs::path folder = fs::is_directory(path) ? fs::path(path) : fs::absolute(path).parent_path();
  if (!fs::exists(folder / data::kTokenizerFile)) return std::nullopt;
  data::Tokenizer tokenizer = data::Tokenizer::load(folder.string());
  const std::string file = (folder / data::kTokenizerFile).string();
  if (!data.tokenizer_hash().empty() && data.tokenizer_hash() != tokenizer.hash()) {
    throw DataError(file, "", -1,
                    text("is tokenizer ", tokenizer.hash(), ", but the shards beside it were made by ",
                         data.tokenizer_hash(), "; pack the text again"));
  }
  if (tokenizer.vocabulary() > data.classes()) {
    throw DataError(file, "", -1,
                    text("has a vocabulary of ", tokenizer.vocabulary(), ", the shards beside it one of ",
                         data.classes(), "; it is not the tokenizer of these shards"));
  }
  return tokenizer;
}

}  // namespace lockstep::train
