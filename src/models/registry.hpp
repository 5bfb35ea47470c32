#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/settings.hpp"

namespace lockstep::models {

class Model;

/// What a model is made from.
struct ModelRequest {
  config::ModelSettings settings;
  std::vector<std::int64_t> input_shape;  ///< of one row; of tokens {sequence length}
  std::int64_t classes = 0;               ///< of tokens the vocabulary: ids are below it
  bool tokens = false;                    ///< rows are token sequences, and the targets the next tokens
};

/// For models of images or features: throws UsageError where the data are tokens.
void refuse_tokens(const ModelRequest& request);

/// Makes the model that `request.settings.name` names, on the CPU, with Torch's present random state.
/// Throws UsageError with the list of names, and where the data does not fit the model.
///
/// The registry is the folder models/zoo: NAME.cpp there defines `std::shared_ptr<Model> make_NAME(const
/// ModelRequest&)`, and the build lists it. Nothing else is to be edited to add a model.
std::shared_ptr<Model> make_model(const ModelRequest& request);

std::vector<std::string> model_names();

}  // namespace lockstep::models
