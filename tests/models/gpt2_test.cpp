#include <torch/torch.h>

#include "base/error.hpp"
#include "models/model.hpp"
#include "models/registry.hpp"
#include "plain_gpt2.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t kVocabulary = 23, kLength = 8, kWidth = 32, kHeads = 4, kLayers = 3;
constexpr test::PlainGpt2 kPlain{kLayers, kWidth, kHeads, kVocabulary};

models::ModelRequest request() {
  models::ModelRequest request;
  request.settings.name = "gpt2";
  request.settings.layers = kLayers;
  request.settings.width = kWidth;
  request.settings.heads = kHeads;
  request.settings.context = kLength;
  request.input_shape = {kLength};
  request.classes = kVocabulary;
  request.tokens = true;
  return request;
}

models::Batch batch(std::int64_t rows) {
  return {at::randint(kVocabulary, {rows, kLength}, at::kLong),
          at::randint(kVocabulary, {rows, kLength}, at::kLong)};
}

/// Moves every parameter off its initial value, so that no bias is zero and no weight one.
void perturb(models::Model& model) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.add_(torch::randn_like(parameter), 0.05);
}

}  // namespace

TEST_CASE("gpt2's loss, gradients and next logits are those of the model written out in plain functions") {
  torch::manual_seed(5);
  const auto model = models::make_model(request());
  perturb(*model);
  const auto data = batch(3);
  const at::Tensor logits = test::plain_logits(*model, data.inputs, kPlain);
  const at::Tensor expected =
      at::cross_entropy_loss(logits.flatten(0, 1), data.targets.flatten(), {}, at::Reduction::Sum);
  expected.backward();
  std::vector<at::Tensor> gradients;
  for (auto& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
  model->zero_grad();
  const auto loss = model->loss(data);
  CHECK(loss.sum.item<double>() == Approx(expected.item<double>()).epsilon(1e-6));
  loss.sum.backward();
  const auto parameters = model->named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    INFO(parameters[i].key());
    CHECK(at::allclose(parameters[i].value().grad(), gradients[i], 1e-4, 1e-5));
  }
  torch::NoGradGuard no_grad;
  CHECK(
      at::allclose(model->next_logits(data.inputs.slice(0, 0, 1).slice(1, 0, 5)), logits[0][4], 1e-5, 1e-5));
}

TEST_CASE("gpt2 with recomputation gives the very loss and gradients that it gives without") {
  torch::manual_seed(5);
  const auto plain = models::make_model(request());
  auto with = request();
  with.settings.recompute = true;
  torch::manual_seed(5);
  const auto again = models::make_model(with);
  const auto data = batch(2);
  const auto first = plain->loss(data).sum;
  const auto second = again->loss(data).sum;
  CHECK(first.item<float>() == second.item<float>());
  first.backward();
  second.backward();
  for (std::size_t i = 0; i < plain->parameters().size(); ++i)
    CHECK(at::equal(plain->parameters()[i].grad(), again->parameters()[i].grad()));
}

TEST_CASE("gpt2's next logits are the same whether it reads a row at once or remembers parts of it") {
  torch::manual_seed(5);
  const auto model = models::make_model(request());
  perturb(*model);
  torch::NoGradGuard no_grad;
  const at::Tensor tokens = batch(1).inputs;
  const at::Tensor expected = test::plain_logits(*model, tokens, kPlain)[0];
  for (const std::vector<std::int64_t>& parts :
       {std::vector<std::int64_t>{8}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 2, 3}, {5, 1, 1, 1}}) {
    models::Past past;
    for (const auto length : parts) {
      const at::Tensor logits = model->next_logits(tokens.narrow(1, past.length, length), &past);
      CHECK(at::allclose(logits, expected[past.length - 1], 1e-5, 1e-5));
    }
    CHECK(past.length == kLength);
    CHECK_THROWS_AS(model->next_logits(tokens.narrow(1, 0, 1), &past), c10::Error);  // no place is left
  }
}

TEST_CASE("a token sees no later token") {
  torch::manual_seed(5);
  const auto model = models::make_model(request());
  torch::NoGradGuard no_grad;
  const auto data = batch(1);
  const at::Tensor before = model->next_logits(data.inputs.slice(1, 0, 4));
  at::Tensor changed = data.inputs.clone();
  changed.slice(1, 4).fill_(1);
  CHECK(at::allclose(test::plain_logits(*model, changed, kPlain)[0][3], before, 1e-5, 1e-6));
}

TEST_CASE("gpt2's vocabulary is padded with rows that stay zero and sizes come by name") {
  torch::manual_seed(5);
  const auto model = models::make_model(request());
  const at::Tensor wte = model->named_parameters()["wte"];
  CHECK(wte.size(0) == 128);
  CHECK(wte.slice(0, kVocabulary).abs().max().item<float>() == 0);
  model->loss(batch(2)).sum.backward();
  CHECK(wte.grad().slice(0, kVocabulary).abs().max().item<float>() == 0);
  CHECK(model->operations_per_sample() > 0);
}

TEST_CASE("gpt2 refuses heads, sizes, lengths and data that do not fit, with both values") {
  auto bad = request();
  bad.settings.heads = 5;
  CHECK_THROWS_WITH(models::make_model(bad), test::contains("--heads 5 does not divide --width 32"));
  bad.settings.heads = 0;
  CHECK_THROWS_WITH(models::make_model(bad),
                    test::contains("--heads 12 (of --size 124m) does not divide --width 32"));
  bad = request();
  bad.settings.size = "125m";
  CHECK_THROWS_WITH(models::make_model(bad), test::contains("'125m'"));
  bad = request();
  bad.input_shape = {kLength + 1};
  CHECK_THROWS_WITH(models::make_model(bad), test::contains("sequences of 9 tokens, --context is 8"));
  bad = request();
  bad.tokens = false;
  CHECK_THROWS_WITH(models::make_model(bad), test::contains("lockstep pack text"));
}
