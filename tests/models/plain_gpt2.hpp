#pragma once

// Include after Torch.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "models/model.hpp"

namespace lockstep::test {

struct PlainGpt2 {
  std::int64_t layers, width, heads, vocabulary;
};

/// GPT-2's logits [sequences, length, vocabulary] written out with torch's plain functions, without any op of
/// this project, from the parameters of `model`.
inline at::Tensor plain_logits(models::Model& model, const at::Tensor& tokens, const PlainGpt2& shape) {
  const auto parameters = model.named_parameters();
  const auto get = [&](const std::string& name) { return parameters[name]; };
  at::Tensor x = at::embedding(get("wte"), tokens) + get("wpe").slice(0, 0, tokens.size(1));
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string h = "h" + std::to_string(layer) + ".";
    const auto norm = [&](const at::Tensor& in, const std::string& name) {
      return at::layer_norm(in, {shape.width}, get(h + name + ".weight"), get(h + name + ".bias"), 1e-5);
    };
    const auto linear = [&](const at::Tensor& in, const std::string& name) {
      return at::linear(in, get(h + name + ".weight"), get(h + name + ".bias"));
    };
    const auto qkv = linear(norm(x, "ln1"), "qkv").chunk(3, 2);
    std::vector<at::Tensor> parts;
    for (const auto& part : qkv) {
      parts.push_back(part.view({tokens.size(0), tokens.size(1), shape.heads, shape.width / shape.heads})
                          .transpose(1, 2));
    }
    const double root = std::sqrt(static_cast<double>(shape.width / shape.heads));
    at::Tensor scores = at::matmul(parts[0], parts[1].transpose(2, 3)) / root;
    const at::Tensor future =
        at::ones({tokens.size(1), tokens.size(1)}, tokens.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
    const at::Tensor mixed = at::matmul(at::softmax(scores, 3), parts[2]).transpose(1, 2).flatten(2);
    x = x + linear(mixed, "proj");
    x = x + linear(at::gelu(linear(norm(x, "ln2"), "fc"), "tanh"), "out");
  }
  x = at::layer_norm(x, {shape.width}, get("lnf.weight"), get("lnf.bias"), 1e-5);
  return at::linear(x, get("wte")).slice(2, 0, shape.vocabulary);
}

}  // namespace lockstep::test
