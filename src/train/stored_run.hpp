#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "config/settings.hpp"
#include "data/shards.hpp"
#include "data/tokenizer.hpp"
#include "models/registry.hpp"
#include "mpi/communicator.hpp"

/// What a run leaves for others than itself: how its model is made again without its data.
namespace lockstep::train {

struct StoredRun {
  config::TrainSettings settings;
  std::string checkpoint;  ///< folder
};

/// `checkpoint` is a folder, or "latest". Collective. Throws DataError: input_missing where there is no run
/// or none yet that was saved.
StoredRun find_stored_run(const std::string& run_folder, const std::string& checkpoint,
                          const mpi::Communicator& world);

/// What a checkpoint's state says of the data that its model was made for.
nlohmann::json shape_of(const data::DataSet& data);

/// The inverse. Throws DataError where the checkpoint does not say.
models::ModelRequest stored_request(const StoredRun& run);

/// The tokenizer in the folder of token data; none where there is none, or `data` are no tokens. Throws
/// DataError where it is not the one that made the data.
std::optional<data::Tokenizer> tokenizer_beside(const data::DataSet& data, const std::string& path);

}  // namespace lockstep::train
