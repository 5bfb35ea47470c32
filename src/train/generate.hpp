#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "data/tokenizer.hpp"
#include "models/model.hpp"
#include "mpi/communicator.hpp"
#include "train/sample.hpp"

namespace lockstep::train {

/// What a text is written with. The model is in evaluation mode on `device`.
struct Writer {
  models::Model& model;
  const data::Tokenizer& tokenizer;
  std::int64_t
      context;  ///< tokens that the model looks back on at most; a longer text, at half of them at least
  config::Precision precision;
  at::Device device;
};

/// Goes on from `prompt` by at most `count` tokens, or to the end of the document, and returns the tokens.
/// `print` gets the new text piece by piece, never part of a character.
std::vector<std::int32_t> write_text(const Writer& writer, const std::string& prompt, std::int64_t count,
                                     Sampler sampler, const std::function<void(const std::string&)>& print);

/// `lockstep generate`: text from a run's checkpoint, on standard output. One process.
int run_generation(const config::GenerateSettings& settings, const mpi::Communicator& world);

}  // namespace lockstep::train
