// The lockstep half of tests/parity; see parity.py, which starts it.
//
// parity_program train FOLDER
//     trains small networks and writes into FOLDER/CASE what they started from, every batch and every loss
// parity_program scale INIT GROWTH BACKOFF INTERVAL PATTERN OUTPUT
//     PATTERN: one byte a step, 0 where the gradients are finite; OUTPUT: the loss scale after each step,
//     float32
#include <torch/torch.h>

#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "data/pack.hpp"
#include "mpi/environment.hpp"
#include "precision/step_state.hpp"
#include "support/step_rig.hpp"

namespace {

using namespace lockstep;

constexpr std::int64_t kSteps = 20;

class RawFile {
 public:
  explicit RawFile(const std::string& path) : path_(path), file_(path, std::ios::binary) {}
  ~RawFile() {
    if (!file_.flush()) std::cerr << path_ << " could not be written\n";
  }
  template <class T>
  void append(const T* values, std::int64_t count) {
    file_.write(reinterpret_cast<const char*>(values), count * static_cast<std::streamsize>(sizeof(T)));
  }
  void append(const at::Tensor& values) {
    const at::Tensor packed = values.contiguous();
    file_.write(static_cast<const char*>(packed.data_ptr()), static_cast<std::streamsize>(packed.nbytes()));
  }

 private:
  std::string path_;
  std::ofstream file_;
};

struct Case {
  const char* model;
  config::OptimizerKind optimizer;
  double weight_decay;
  double clip_norm;
  std::int64_t micro_batch;
};

std::string name_of(const Case& which) {
  return text(which.model, which.optimizer == config::OptimizerKind::adamw ? "-adamw" : "-sgd",
              which.weight_decay > 0 ? "-decay" : "", which.clip_norm > 0 ? "-clip" : "",
              which.micro_batch > 0 ? "-micro" : "");
}

config::TrainSettings settings_of(const Case& which) {
  config::TrainSettings settings;
  settings.model.name = which.model;
  settings.model.hidden = 48;
  settings.optimizer.kind = which.optimizer;
  settings.optimizer.lr = which.optimizer == config::OptimizerKind::adamw ? 2e-3 : 5e-2;
  settings.optimizer.weight_decay = which.weight_decay;
  settings.optimizer.clip_norm = which.clip_norm;
  settings.precision = config::Precision::fp32;
  settings.global_batch = 16;
  settings.micro_batch = which.micro_batch;
  settings.run.steps = kSteps;
  settings.seed = 11;
  return settings;
}

/// Masters by parameter, in the order of registration, as the model's own tensors hold them in fp32.
nlohmann::json write_weights(const std::string& path, train::Learner& learner) {
  RawFile file(path);
  nlohmann::json names = nlohmann::json::array();
  for (const auto& parameter : learner.model().named_parameters()) {
    file.append(parameter.value().detach());
    names.push_back({{"name", parameter.key()}, {"shape", parameter.value().sizes().vec()}});
  }
  return names;
}

void train_case(const Case& which, const data::DataSet& data, const std::string& folder,
                const mpi::Communicator& world) {
  make_folder(folder);
  const config::TrainSettings settings = settings_of(which);
  test::StepRig rig(settings, data, world);
  nlohmann::json about{{"model", which.model},
                       {"optimizer", which.optimizer == config::OptimizerKind::adamw ? "adamw" : "sgd"},
                       {"lr", settings.optimizer.lr},
                       {"betas", {settings.optimizer.beta1, settings.optimizer.beta2}},
                       {"epsilon", settings.optimizer.epsilon},
                       {"momentum", settings.optimizer.momentum},
                       {"weight_decay", which.weight_decay},
                       {"clip_norm", which.clip_norm},
                       {"hidden", settings.model.hidden},
                       {"classes", data.classes()},
                       {"input_shape", data.input_shape()},
                       {"weights", write_weights(folder + "/weights.f32", *rig.learner)},
                       {"rows", nlohmann::json::array()}};
  RawFile inputs(folder + "/inputs.f32");
  RawFile targets(folder + "/targets.i64");
  RawFile losses(folder + "/losses.f32");
  RawFile norms(folder + "/norms.f32");
  for (std::int64_t step = 0; step < kSteps; ++step) {
    rig.input.advance();
    for (std::int64_t micro = 0; micro < rig.accumulation; ++micro) {
      const models::Batch batch = rig.input.slot(micro);
      inputs.append(batch.inputs);
      targets.append(batch.targets);
    }
    about["rows"].push_back(rig.input.global_count());
    rig.step.run();
    const auto state = rig.state();
    losses.append(&state.loss, 1);
    norms.append(&state.gradient_norm, 1);
  }
  write_weights(folder + "/final.f32", *rig.learner);
  write_file_atomically(folder + "/case.json", about.dump());
}

/// Classes that can be told apart: each has a pattern of 4 x 4 blocks of its own, under noise.
void write_images(const std::string& folder, std::int64_t rows) {
  make_folder(folder);
  std::vector<std::uint8_t> images;
  std::vector<std::int64_t> labels;
  for (std::int64_t row = 0; row < rows; ++row) {
    labels.push_back(row % 10);
    for (std::int64_t i = 0; i < 28 * 28; ++i) {
      const std::int64_t block = i / 28 / 4 * 7 + i % 28 / 4;
      const bool bright = mix_all(row % 10, block) % 2 == 1;
      images.push_back(static_cast<std::uint8_t>((bright ? 160 : 20) + mix_all(row, i) % 80));
    }
  }
  data::write_shard(folder + "/shard-00000.h5",
                    {{1, 28, 28}, data::Scalar::uint8, rows, images.data(), labels.data(), 10, {}, {}});
}

int train_all(const std::string& folder, int argc, char** argv) {
  const mpi::Environment environment(&argc, &argv);
  const auto world = mpi::Communicator::world();
  at::set_num_threads(1);
  write_images(folder + "/data", 71);  // the fifth step of an epoch has 7 rows
  const auto data = data::DataSet::open(folder + "/data");
  for (const char* model : {"lenet", "mlp"}) {
    for (const auto optimizer : {config::OptimizerKind::adamw, config::OptimizerKind::sgd}) {
      for (const double decay : {0.0, 0.1}) {
        for (const double clip : {0.0, 0.5}) {
          const Case which{model, optimizer, decay, clip, 0};
          train_case(which, data, folder + "/" + name_of(which), world);
        }
      }
      const Case micro{model, optimizer, 0.1, 0.5, 6};
      train_case(micro, data, folder + "/" + name_of(micro), world);
    }
  }
  return 0;
}

int scale(char** words) {
  precision::ScaleRule rule;
  precision::StepState state{};
  state.loss_scale = std::stof(words[0]);
  rule.growth_factor = std::stod(words[1]);
  rule.backoff_factor = std::stod(words[2]);
  rule.growth_interval = std::stoi(words[3]);
  state.hysteresis_left = rule.hysteresis;
  std::ifstream pattern(words[4], std::ios::binary);
  RawFile output(words[5]);
  for (auto step = std::istreambuf_iterator<char>(pattern); step != std::istreambuf_iterator<char>();
       ++step) {
    state.found_nonfinite = *step != 0;
    precision::end_step(state, rule);
    output.append(&state.loss_scale, 1);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    if (command == "train" && argc == 3) return train_all(argv[2], argc, argv);
    if (command == "scale" && argc == 8) return scale(argv + 2);
  } catch (const std::exception& error) {
    std::cerr << "parity_program: " << error.what() << "\n";
    return 70;
  }
  std::cerr << "usage: parity_program train FOLDER | scale INIT GROWTH BACKOFF INTERVAL PATTERN OUTPUT\n";
  return 64;
}
