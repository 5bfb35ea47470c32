#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace lockstep::models {

/// One micro-batch of one rank, on the model's device. May hold no rows at all.
struct Batch {
  at::Tensor inputs;   ///< [rows, ...shape], normalised; half or bfloat16 on CUDA in fp16 and bf16, else
                       ///< float; of token rows [rows, sequence] int64, contiguous
  at::Tensor targets;  ///< [rows] int64; of token rows [rows, sequence] int64, contiguous: the next tokens
  /// Float scalar on the device: the gradient that the backward pass of this batch will begin with. A model
  /// may form gradients with it while it computes the loss; undefined in evaluation.
  at::Tensor loss_gradient = {};
};

struct Loss {
  at::Tensor sum;  ///< float scalar: the sum, not the mean, of the losses of the rows, or of all their tokens
  at::Tensor
      correct;  ///< int64 scalar: rows predicted right; only in evaluation, and only where it has a meaning
};

/// What a model of tokens remembers of the tokens that it has read, so that those after them cost no second
/// look. A new one remembers nothing; it is of one model and one sequence.
struct Past {
  std::int64_t length = 0;         ///< tokens read
  std::vector<at::Tensor> layers;  ///< what each layer keeps; the model's own
};

/// What the trainer needs to know of a model. Its parameters are float when it is made; the trainer stores
/// them as
/// --precision asks and makes each a view of one flat array. Every parameter takes part in every loss.
class Model : public torch::nn::Module {
 public:
  virtual Loss loss(const Batch& batch) = 0;

  /// Of a model of tokens: the logits, float [vocabulary], of the token after the last of `tokens` [1, t]
  /// int64, t >= 1. With `past`, `tokens` come after those that it remembers, and are remembered as well. All
  /// together are as many as the sequence length that the model was made for, at most. Other models throw
  /// UsageError.
  virtual at::Tensor next_logits(const at::Tensor& tokens, Past* past = nullptr);

  /// True where ops of this model choose algorithms by timing (ops/linear.hpp): the trainer then makes all
  /// ranks choose alike before the first step.
  virtual bool chooses_algorithms() const { return false; }

  /// Floating-point operations that training takes for one row, forward and backward; 0: not known.
  virtual double operations_per_sample() const { return 0; }
};

/// A model that gives one logit a class; its loss is cross-entropy.
class Classifier : public Model {
 public:
  /// [rows, ...shape] to [rows, classes].
  virtual at::Tensor logits(const at::Tensor& inputs) = 0;
  Loss loss(const Batch& batch) final;
};

}  // namespace lockstep::models
