#include "models/model.hpp"
#include "models/registry.hpp"

namespace lockstep::models {

namespace {

/// Two hidden layers of `--hidden` units with ReLU, on inputs of any shape taken as one vector.
class Mlp : public Classifier {
 public:
  Mlp(std::int64_t inputs, std::int64_t hidden, std::int64_t classes)
      : first_(register_module("first", torch::nn::Linear(inputs, hidden))),
        second_(register_module("second", torch::nn::Linear(hidden, hidden))),
        head_(register_module("head", torch::nn::Linear(hidden, classes))) {}

  at::Tensor logits(const at::Tensor& inputs) override {
    const at::Tensor x = inputs.flatten(1);  // [rows, inputs]
    return head_(torch::relu(second_(torch::relu(first_(x)))));
  }

 private:
  torch::nn::Linear first_, second_, head_;
};

}  // namespace

std::shared_ptr<Model> make_mlp(const ModelRequest& request) {
  refuse_tokens(request);
  std::int64_t inputs = 1;
  for (const auto extent : request.input_shape) inputs *= extent;
  return std::make_shared<Mlp>(inputs, request.settings.hidden, request.classes);
}

}  // namespace lockstep::models
