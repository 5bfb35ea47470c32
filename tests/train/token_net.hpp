#pragma once

// Include after Torch.
#include <memory>
#include <vector>

#include "models/model.hpp"
#include "ops/cross_entropy.hpp"

namespace lockstep::test {

/// Predicts the next token from the last one alone: an embedding and a linear layer.
class TokenNet : public models::Model {
 public:
  explicit TokenNet(std::int64_t vocabulary, std::int64_t width = 64)
      : embedding_(register_module("embedding", torch::nn::Embedding(vocabulary, width))),
        head_(register_module("head", torch::nn::Linear(width, vocabulary))) {}

  models::Loss loss(const models::Batch& batch) override {
    models::Loss loss;
    loss.sum = ops::cross_entropy_sum(head_(embedding_(batch.inputs)).flatten(0, 1), batch.targets.flatten());
    return loss;
  }

  at::Tensor next_logits(const at::Tensor& tokens, models::Past* past) override {
    read.push_back(tokens.size(1));
    past->length += tokens.size(1);
    longest_seen = std::max(longest_seen, past->length);
    return head_(embedding_(tokens.select(1, tokens.size(1) - 1))).flatten();
  }

  /// From now on `next` follows `token`, whatever the temperature.
  void follow(std::int64_t token, std::int64_t next) {
    torch::NoGradGuard no_grad;
    const std::int64_t width = embedding_->weight.size(1);
    embedding_->weight[token] = torch::zeros({width});
    embedding_->weight[token][token % width] = 1000;
    head_->weight[next][token % width] = 1000;
  }

  std::vector<std::int64_t> read;  ///< tokens of each call of next_logits
  std::int64_t longest_seen = 0;   ///< tokens read and remembered together

 private:
  torch::nn::Embedding embedding_;
  torch::nn::Linear head_;
};

inline std::shared_ptr<TokenNet> token_net(std::int64_t vocabulary = 11, std::uint64_t seed = 1) {
  torch::manual_seed(seed);
  return std::make_shared<TokenNet>(vocabulary);
}

}  // namespace lockstep::test
