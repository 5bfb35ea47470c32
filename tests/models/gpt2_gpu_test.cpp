// The 124M model with given weights against torch's own functions, in FP32 and in FP16.
#include <torch/torch.h>

#include <iostream>

#include "config/settings.hpp"
#include "models/model.hpp"
#include "models/registry.hpp"
#include "plain_gpt2.hpp"
#include "precision/autocast.hpp"
#include "precision/flat_parameters.hpp"
#include "support/gpu.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t kVocabulary = 50257, kLength = 512, kSequences = 4;
constexpr test::PlainGpt2 kPlain{12, 768, 12, kVocabulary};

/// Initial weights moved off their start, so that no bias is zero; the same at every call.
std::shared_ptr<models::Model> make_model() {
  torch::manual_seed(11);
  models::ModelRequest request;
  request.settings.name = "gpt2";
  request.input_shape = {kLength};
  request.classes = kVocabulary;
  request.tokens = true;
  const auto model = models::make_model(request);
  torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.add_(torch::randn_like(parameter), 0.01);
  model->to(at::kCUDA);
  return model;
}

struct Outcome {
  at::Tensor logits;  // of the last token of each sequence, double
  double loss;        // mean over tokens
};

at::Tensor tokens_of(std::int64_t seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return at::randint(kVocabulary, {kSequences, kLength}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
}

double mean_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), targets.flatten()).item<double>();
}

Outcome torchs_own(config::Precision precision) {
  const auto model = make_model();
  const precision::AutocastScope autocast(precision, true);
  const at::Tensor logits = test::plain_logits(*model, tokens_of(1), kPlain);
  return {logits.select(1, -1).to(at::kDouble), mean_loss(logits, tokens_of(2))};
}

/// The whole model in half, softmax and normalisation inside torch's own kernels.
Outcome torchs_half() {
  const auto model = make_model();
  model->to(at::kHalf);
  const at::Tensor logits = test::plain_logits(*model, tokens_of(1), kPlain);
  return {logits.select(1, -1).to(at::kDouble), mean_loss(logits, tokens_of(2))};
}

Outcome ours(config::Precision precision) {
  const auto model = make_model();
  const precision::FlatParameters parameters(*model, precision, [](std::int64_t bytes) {
    const auto memory =
        std::make_shared<at::Tensor>(at::zeros({bytes}, at::TensorOptions(at::kCUDA).dtype(at::kByte)));
    return std::shared_ptr<void>(memory, memory->data_ptr());
  });
  const precision::AutocastScope autocast(precision, true);
  std::vector<at::Tensor> last;
  for (const auto& sequence : tokens_of(1).split(1)) last.push_back(model->next_logits(sequence));
  const double sum = model->loss({tokens_of(1), tokens_of(2)}).sum.item<double>();
  return {at::stack(last).to(at::kDouble), sum / (kSequences * kLength)};
}

double distance(const at::Tensor& seen, const at::Tensor& expected) {
  return ((seen - expected).norm() / expected.norm()).item<double>();
}

}  // namespace

TEST_CASE("gpt2 124m is torch's in FP32, and in FP16 as near to it as torch's own FP16", "[gpu]") {
  if (!test::gpu_here()) return;
  torch::NoGradGuard no_grad;
  precision::set_arithmetic(config::Precision::fp32);
  const Outcome expected = torchs_own(config::Precision::fp32);
  const Outcome full = ours(config::Precision::fp32);
  CHECK(distance(full.logits, expected.logits) < 1e-4);
  CHECK(full.loss == Approx(expected.loss).epsilon(1e-4));
  const Outcome autocast = torchs_own(config::Precision::fp16), half = torchs_half(),
                low = ours(config::Precision::fp16);
  std::cout << "distance of logits from FP32: ours " << distance(low.logits, expected.logits)
            << ", torch autocast " << distance(autocast.logits, expected.logits) << ", torch half "
            << distance(half.logits, expected.logits) << "\nof the loss: ours "
            << std::abs(low.loss - expected.loss) << ", torch autocast "
            << std::abs(autocast.loss - expected.loss) << ", torch half "
            << std::abs(half.loss - expected.loss) << std::endl;
  const double allowed =
      std::max(distance(autocast.logits, expected.logits), distance(half.logits, expected.logits));
  CHECK(distance(low.logits, expected.logits) <= allowed);
  CHECK(std::abs(low.loss - expected.loss) <= 1e-3 * expected.loss);
}
