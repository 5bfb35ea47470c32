// One GPU, one GPT-2 training step on random tokens, without data, ranks or files: the step's own speed.
//   gpt2_step SIZE BATCH [STEPS [PRECISION [LENGTH]]]
// Prints one JSON line: milliseconds of a step run op by op and replayed as one CUDA graph, tokens/s, peak
// memory, the first and the last loss (they must fall), and the time of every matrix product with its rate.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "models/model.hpp"
#include "models/registry.hpp"
#include "ops/fused_library.hpp"
#include "optim/optimizer.hpp"
#include "precision/autocast.hpp"
#include "precision/flat_parameters.hpp"
#include "precision/loss_scaler.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t kVocabulary = 50257;

struct Bench {
  std::shared_ptr<models::Model> model;
  config::Precision precision;
  std::unique_ptr<precision::FlatParameters> parameters;
  std::unique_ptr<precision::LossScaler> scaler;
  std::unique_ptr<optim::Optimizer> optimizer;
  models::Batch batch;
  std::int64_t tokens;

  void step() {
    scaler->begin();
    batch.loss_gradient = scaler->gradient_seed(tokens);
    models::Loss loss;
    {
      const precision::AutocastScope autocast(precision, true);
      loss = model->loss(batch);
    }
    scaler->scale(loss.sum, tokens).backward();
    scaler->inspect();
    optimizer->step(scaler->state());
    scaler->update();
  }
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Body>
double milliseconds_of(Body body, int count) {
  torch::cuda::synchronize();
  const double start = seconds();
  for (int i = 0; i < count; ++i) body();
  torch::cuda::synchronize();
  return (seconds() - start) / count * 1e3;
}

Bench make(const std::string& size, std::int64_t sequences, config::Precision precision,
           std::int64_t length) {
  torch::manual_seed(1);
  const at::Device device(at::kCUDA, 0);
  precision::set_arithmetic(precision);
  models::ModelRequest request;
  request.settings.name = "gpt2";
  request.settings.size = size;
  request.settings.recompute = std::getenv("RECOMPUTE") != nullptr;
  request.input_shape = {length};
  request.classes = kVocabulary;
  request.tokens = true;
  Bench bench;
  bench.precision = precision;
  bench.model = models::make_model(request);
  bench.model->to(device);
  bench.model->train();
  bench.parameters =
      std::make_unique<precision::FlatParameters>(*bench.model, precision, [&](std::int64_t bytes) {
        auto memory =
            std::make_shared<at::Tensor>(at::zeros({bytes}, at::TensorOptions(device).dtype(at::kByte)));
        return std::shared_ptr<void>(memory, memory->data_ptr());
      });
  config::OptimizerSettings optimizer;
  optimizer.lr = 1e-4;
  bench.scaler = std::make_unique<precision::LossScaler>(*bench.parameters, config::ScalerSettings{},
                                                         precision, 1.0, std::vector<float>{1e-4f});
  bench.optimizer = optim::make_optimizer(*bench.parameters, optimizer);
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  bench.batch.inputs = at::randint(kVocabulary, {sequences, length}, options);
  bench.batch.targets = at::randint(kVocabulary, {sequences, length}, options);
  bench.tokens = sequences * length;
  return bench;
}

void print_products() {
  std::printf("\"products\": [");
  const char* comma = "";
  for (const auto& [shape, chosen] : ops::matmul().choices()) {
    const double operations = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.columns) *
                              static_cast<double>(shape.inner);
    std::printf(
        "%s{\"rows\": %ld, \"columns\": %ld, \"inner\": %ld, \"left_t\": %d, \"right_t\": %d, \"adds\": %d, "
        "\"epilogue\": %d, \"us\": %.1f, \"tflops\": %.0f}",
        comma, shape.rows, shape.columns, shape.inner, shape.left_transposed, shape.right_transposed,
        shape.adds, static_cast<int>(shape.epilogue), chosen.seconds * 1e6,
        operations / chosen.seconds / 1e12);
    comma = ", ";
  }
  std::printf("]");
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::cerr << "gpt2_step SIZE BATCH [STEPS [PRECISION [LENGTH]]]\n";
    return 64;
  }
  const int steps = count > 3 ? std::atoi(arguments[3]) : 20;
  const std::string word = count > 4 ? arguments[4] : "fp16";
  const std::int64_t length = count > 5 ? std::atol(arguments[5]) : 1024;
  const auto precision = word == "fp16"   ? config::Precision::fp16
                         : word == "bf16" ? config::Precision::bf16
                         : word == "tf32" ? config::Precision::tf32
                                          : config::Precision::fp32;
  const auto stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  Bench bench = make(arguments[1], std::atol(arguments[2]), precision, length);
  double first = 0;
  for (int i = 0; i < 4; ++i) {
    bench.step();
    if (i == 0) first = bench.scaler->read().loss;
  }
  const double plain = milliseconds_of([&] { bench.step(); }, 5);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  bench.step();
  graph.capture_end();
  for (int i = 0; i < 3; ++i) graph.replay();
  const double replayed = milliseconds_of([&] { graph.replay(); }, steps);
  const auto state = bench.scaler->read();
  const auto statistics = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  const double peak = static_cast<double>(statistics.allocated_bytes[0].peak) / (1 << 30);
  const double operations =
      bench.model->operations_per_sample() * static_cast<double>(bench.batch.inputs.size(0));
  std::printf(
      "{\"size\": \"%s\", \"precision\": \"%s\", \"batch\": %s, \"plain_ms\": %.3f, \"graph_ms\": %.3f, "
      "\"tokens_per_s\": %.0f, "
      "\"mfu\": %.4f, \"peak_gib\": %.2f, \"reserved_gib\": %.2f, \"first_loss\": %.4f, \"last_loss\": %.4f, "
      "\"skipped\": %ld, ",
      arguments[1], word.c_str(), arguments[2], plain, replayed,
      static_cast<double>(bench.tokens) / replayed * 1e3, operations / (replayed * 1e-3) / 989e12, peak,
      static_cast<double>(statistics.reserved_bytes[0].peak) / (1 << 30), first,
      static_cast<double>(state.loss), static_cast<long>(state.skipped_steps));
  print_products();
  std::printf("}\n");
  return state.loss < first ? 0 : 1;
}
