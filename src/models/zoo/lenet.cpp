#include "base/error.hpp"
#include "base/text.hpp"
#include "models/model.hpp"
#include "models/registry.hpp"

namespace lockstep::models {

namespace {

/// The convolutional network of LeCun et al. 1998 with ReLU and max-pooling: two 5 x 5 convolutions, two
/// hidden layers.
class LeNet : public Classifier {
 public:
  LeNet(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t classes)
      : conv1_(register_module("conv1",
                               torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, 16, 5).padding(2)))),
        conv2_(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 5)))),
        fc1_(register_module("fc1",
                             torch::nn::Linear(32 * ((height / 2 - 4) / 2) * ((width / 2 - 4) / 2), 120))),
        fc2_(register_module("fc2", torch::nn::Linear(120, 84))),
        head_(register_module("head", torch::nn::Linear(84, classes))) {}

  at::Tensor logits(const at::Tensor& inputs) override {
    at::Tensor x = torch::max_pool2d(torch::relu(conv1_(inputs)), 2);  // [rows, 16, height/2, width/2]
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2).flatten(1);       // [rows, 32 * 5 * 5] for 28 x 28
    return head_(torch::relu(fc2_(torch::relu(fc1_(x)))));
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_, head_;
};

}  // namespace

std::shared_ptr<Model> make_lenet(const ModelRequest& request) {
  refuse_tokens(request);
  const auto& shape = request.input_shape;
  if (shape.size() != 3 || shape[1] < 12 || shape[2] < 12) {
    std::vector<std::string> extents;
    for (const auto extent : shape) extents.push_back(std::to_string(extent));
    throw UsageError(text(
        "--model lenet takes images [channels, height, width] of at least 12 x 12, the data has rows of [",
        join(extents, ", "), "]; take --model mlp for other shapes"));
  }
  return std::make_shared<LeNet>(shape[0], shape[1], shape[2], request.classes);
}

}  // namespace lockstep::models
