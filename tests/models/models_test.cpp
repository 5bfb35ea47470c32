#include <torch/torch.h>

#include "base/error.hpp"
#include "models/model.hpp"
#include "models/registry.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {

models::ModelRequest request(const std::string& name, std::vector<std::int64_t> shape = {1, 28, 28}) {
  models::ModelRequest request;
  request.settings.name = name;
  request.input_shape = std::move(shape);
  request.classes = 10;
  if (name != "gpt2") return request;
  request.settings.layers = 2;
  request.settings.width = 16;
  request.settings.heads = 2;
  request.settings.context = 12;
  request.input_shape = {12};
  request.tokens = true;
  return request;
}

/// What the model of request(name) takes.
models::Batch batch(const std::string& name, std::int64_t rows) {
  if (name == "gpt2") return {at::randint(10, {rows, 12}, at::kLong), at::randint(10, {rows, 12}, at::kLong)};
  return {torch::randn({rows, 1, 28, 28}), torch::zeros({rows}, at::kLong)};
}

}  // namespace

TEST_CASE(
    "every registered model gives a finite loss, a gradient to every parameter, and takes an empty batch") {
  for (const auto& name : models::model_names()) {
    torch::manual_seed(1);
    const auto model = models::make_model(request(name));
    for (const std::int64_t rows : {3, 0}) {
      model->zero_grad();
      const auto loss = model->loss(batch(name, rows));
      CHECK(std::isfinite(loss.sum.item<float>()));
      CHECK_FALSE(loss.correct.defined());
      loss.sum.backward();
      for (const auto& parameter : model->named_parameters()) {
        INFO(name << " " << parameter.key() << " rows " << rows);
        CHECK(parameter.value().grad().defined());
      }
    }
    model->eval();
    if (name != "gpt2") CHECK(model->loss(batch(name, 3)).correct.defined());
  }
}

TEST_CASE("an unknown model is refused with the list and the nearest name") {
  CHECK_THROWS_WITH(models::make_model(request("lenett")), test::contains("did you mean lenet"));
  CHECK_THROWS_WITH(models::make_model(request("x")), test::contains("gpt2, lenet, mlp"));
}

TEST_CASE("models of images refuse token data by name, and cannot generate text") {
  for (const std::string name : {"mlp", "lenet"}) {
    models::ModelRequest tokens = request(name, {128});
    tokens.tokens = true;
    CHECK_THROWS_WITH(models::make_model(tokens),
                      test::contains("--model " + name) && test::contains("128 tokens"));
    const auto model = models::make_model(request(name));
    CHECK_THROWS_AS(model->next_logits(torch::zeros({1, 3}, at::kLong)), UsageError);
    CHECK(model->operations_per_sample() == 0);
  }
}

TEST_CASE("lenet refuses data that is no image") {
  CHECK_THROWS_WITH(models::make_model(request("lenet", {784})), test::contains("--model mlp"));
}
