#include <cmath>
#include <functional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "models/model.hpp"
#include "models/registry.hpp"
#include "ops/attention.hpp"
#include "ops/embedding.hpp"
#include "ops/head_loss.hpp"
#include "ops/layer_norm.hpp"
#include "ops/linear.hpp"
#include "ops/recompute.hpp"

namespace lockstep::models {

namespace {

constexpr double kEpsilon = 1e-5;       // of the normalisations
constexpr std::int64_t kPadding = 128;  // the vocabulary grows to a multiple: matrix units like round sizes
constexpr double kInitialDeviation = 0.02;

struct Size {
  const char* name;
  std::int64_t layers, width, heads;
};
constexpr Size kSizes[] = {
    {"124m", 12, 768, 12}, {"350m", 24, 1024, 16}, {"774m", 36, 1280, 20}, {"1.5b", 48, 1600, 25}};

struct Shape {
  std::int64_t layers, width, heads, context, vocabulary;
  std::int64_t length;  ///< of the sequences of the data, at most `context`
};

/// Attention of queries, keys and values, as one layer wrote them, to a matrix of `width` columns.
using Attend = std::function<at::Tensor(const at::Tensor& qkv)>;

/// One transformer block: x + attention(norm(x)), then x + mlp(norm(x)). `x` is [sequences * length, width].
class Block : public torch::nn::Module {
 public:
  explicit Block(const Shape& s)
      : ln1_(register_module("ln1",
                             torch::nn::LayerNorm(torch::nn::LayerNormOptions({s.width}).eps(kEpsilon)))),
        qkv_(register_module("qkv", torch::nn::Linear(s.width, 3 * s.width))),
        proj_(register_module("proj", torch::nn::Linear(s.width, s.width))),
        ln2_(register_module("ln2",
                             torch::nn::LayerNorm(torch::nn::LayerNormOptions({s.width}).eps(kEpsilon)))),
        fc_(register_module("fc", torch::nn::Linear(s.width, 4 * s.width))),
        out_(register_module("out", torch::nn::Linear(4 * s.width, s.width))) {}

  at::Tensor forward(const at::Tensor& x, const Attend& attend) {
    const auto [h, residual] = ops::layer_norm(x, ln1_->weight, ln1_->bias, kEpsilon);
    const at::Tensor attended = attend(ops::linear(h, qkv_->weight, qkv_->bias));
    const at::Tensor middle = ops::linear_add(attended, proj_->weight, proj_->bias, residual);
    const auto [g, kept] = ops::layer_norm(middle, ln2_->weight, ln2_->bias, kEpsilon);
    return ops::mlp_add(g, {fc_->weight, fc_->bias, out_->weight, out_->bias}, kept);
  }

  /// Normal weights, zero biases; what is added to the residual stream is smaller the more layers add to it.
  void initialise(std::int64_t layers) {
    for (auto& layer : {qkv_, proj_, fc_, out_}) {
      const bool adds = layer.ptr() == proj_.ptr() || layer.ptr() == out_.ptr();
      const double deviation =
          adds ? kInitialDeviation / std::sqrt(2.0 * static_cast<double>(layers)) : kInitialDeviation;
      torch::nn::init::normal_(layer->weight, 0, deviation);
      torch::nn::init::zeros_(layer->bias);
    }
  }

 private:
  torch::nn::LayerNorm ln1_;
  torch::nn::Linear qkv_, proj_;
  torch::nn::LayerNorm ln2_;
  torch::nn::Linear fc_, out_;
};

/// GPT-2 (Radford et al. 2019): learned positions, normalisation before each layer, output head tied to the
/// embedding. The vocabulary is padded; padding columns take no part in the softmax.
class Gpt2 : public Model {
 public:
  Gpt2(const Shape& shape, bool recompute) : shape_(shape), recompute_(recompute) {
    const std::int64_t padded = (shape.vocabulary + kPadding - 1) / kPadding * kPadding;
    wte_ = register_parameter("wte", torch::empty({padded, shape.width}));
    wpe_ = register_parameter("wpe", torch::empty({shape.context, shape.width}));
    for (std::int64_t layer = 0; layer < shape.layers; ++layer)
      blocks_.push_back(register_module(text("h", layer), std::make_shared<Block>(shape)));
    lnf_ = register_module("lnf",
                           torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width}).eps(kEpsilon)));
    initialise();
  }

  Loss loss(const Batch& batch) override {
    const at::Tensor x = hidden(batch.inputs);
    return {ops::head_loss({x, wte_, batch.targets.flatten(), shape_.vocabulary}, batch.loss_gradient), {}};
  }

  at::Tensor next_logits(const at::Tensor& tokens, Past* past) override {
    const at::Tensor last = (past == nullptr ? hidden(tokens) : hidden_after(tokens, *past)).slice(0, -1);
    return at::linear(last, wte_).to(at::kFloat).flatten().slice(0, 0, shape_.vocabulary);
  }

  bool chooses_algorithms() const override { return true; }

  /// 6 N + 12 L C T a token: N parameters, two products forward and four backward each; attention counted in
  /// full.
  double operations_per_sample() const override {
    double parameters_count = 0;
    for (const auto& parameter : parameters()) parameters_count += static_cast<double>(parameter.numel());
    const auto length = static_cast<double>(shape_.length);
    return length * (6 * parameters_count +
                     12 * static_cast<double>(shape_.layers) * static_cast<double>(shape_.width) * length);
  }

 private:
  /// Int64 [sequences, length] to [sequences * length, width], normalised for the head.
  at::Tensor hidden(const at::Tensor& tokens) {
    const std::int64_t sequences = tokens.size(0);
    const auto attend = [sequences, heads = shape_.heads](const at::Tensor& qkv) {
      return ops::attention(qkv, sequences, heads);
    };
    at::Tensor x = ops::embedding(tokens, wte_, wpe_);
    for (const auto& block : blocks_) {
      const auto run = [block, attend](const at::Tensor& in) { return block->forward(in, attend); };
      x = recompute_ ? ops::recompute(run, x) : run(x);
    }
    return ops::layer_norm(x, lnf_->weight, lnf_->bias, kEpsilon).out;
  }

  /// The same of int64 [1, length] after what `past` remembers.
  at::Tensor hidden_after(const at::Tensor& tokens, Past& past) {
    past.layers.resize(blocks_.size());
    at::Tensor x = ops::embedding(tokens, wte_, wpe_.narrow(0, past.length, tokens.size(1)));
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      x = blocks_[layer]->forward(x, [&](const at::Tensor& qkv) {
        at::Tensor& kept = past.layers[layer];
        if (!kept.defined())
          kept = at::empty({2, shape_.heads, shape_.length, shape_.width / shape_.heads}, qkv.options());
        return ops::attention_after(qkv, kept, past.length);
      });
    }
    past.length += tokens.size(1);
    return ops::layer_norm(x, lnf_->weight, lnf_->bias, kEpsilon).out;
  }

  void initialise() {
    torch::NoGradGuard no_grad;
    torch::nn::init::normal_(wte_, 0, kInitialDeviation);
    wte_.slice(0, shape_.vocabulary).zero_();
    torch::nn::init::normal_(wpe_, 0, kInitialDeviation);
    for (const auto& block : blocks_) block->initialise(shape_.layers);
  }

  Shape shape_;
  bool recompute_;
  at::Tensor wte_, wpe_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::LayerNorm lnf_{nullptr};
};

Shape shape_of(const ModelRequest& request) {
  const auto& settings = request.settings;
  const Size* size = nullptr;
  for (const auto& known : kSizes) {
    if (settings.size == known.name) size = &known;
  }
  if (size == nullptr)
    throw UsageError(
        text("--size '", settings.size, "' is unknown; gpt2 comes as 124m, 350m, 774m and 1.5b"));
  const auto or_else = [](std::int64_t given, std::int64_t otherwise) {
    return given > 0 ? given : otherwise;
  };
  Shape shape{};
  shape.layers = or_else(settings.layers, size->layers);
  shape.width = or_else(settings.width, size->width);
  shape.heads = or_else(settings.heads, size->heads);
  shape.context = or_else(settings.context, 1024);
  shape.length = request.input_shape.at(0);
  shape.vocabulary = request.classes;
  return shape;
}

}  // namespace

std::shared_ptr<Model> make_gpt2(const ModelRequest& request) {
  if (!request.tokens || request.input_shape.size() != 1) {
    throw UsageError(
        "--model gpt2 takes token data, which lockstep pack text makes; the data has rows of another "
        "kind: take --model lenet or mlp");
  }
  const Shape shape = shape_of(request);
  if (shape.width % shape.heads != 0) {
    const auto& given = request.settings;
    const std::string origin = given.heads > 0 ? "" : text(" (of --size ", given.size, ")");
    throw UsageError(text("--heads ", shape.heads, origin, " does not divide --width ", shape.width,
                          "; every head needs an equal part of the width"));
  }
  if (shape.length > shape.context) {
    throw UsageError(text("the data has sequences of ", shape.length, " tokens, --context is ", shape.context,
                          "; give --context ", shape.length, " or pack the text with --sequence-length ",
                          shape.context));
  }
  return std::make_shared<Gpt2>(shape, request.settings.recompute);
}

}  // namespace lockstep::models
