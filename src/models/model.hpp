#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace lockstep::models {

/// One micro-batch of one rank, on the model's device. May hold no rows at all.
struct Batch {
  /// [rows, ...shape], normalised; half or bfloat16 on CUDA in fp16 and bf16, else float.
  /// Of token data: int64 [rows, length], ids in [0, vocabulary).
  at::Tensor inputs;
  at::Tensor targets;  ///< int64 [rows]; of token data [rows, length], the token after each
  /// Float scalar on the device: the gradient that the backward pass of this batch will begin with. A model may
  /// form gradients with it while it computes the loss; undefined in evaluation.
  at::Tensor loss_gradient;
};

struct Loss {
  at::Tensor sum;  ///< float scalar: the sum, not the mean, of the losses of the rows
  at::Tensor
      correct;  ///< int64 scalar: rows predicted right; only in evaluation, and only where it has a meaning
};

/// What the trainer needs to know of a model. Its parameters are float when it is made; the trainer stores
/// them as
/// --precision asks and makes each a view of one flat array. Every parameter takes part in every loss.
class Model : public torch::nn::Module {
 public:
  virtual Loss loss(const Batch& batch) = 0;

  /// Floating-point operations of one forward and backward pass over one row, for the report of utilisation;
  /// 0: unknown.
  virtual double operations_per_sample() const { return 0; }

  /// Float [vocabulary]: logits of the token that follows `tokens`, int64 [1, length]. Models that predict no
  /// tokens throw UsageError.
  virtual at::Tensor next_logits(const at::Tensor& tokens);
  /// Longest sequence that next_logits takes; 0 where it takes none.
  virtual std::int64_t context() const { return 0; }
};

/// A model that gives one logit a class; its loss is cross-entropy.
class Classifier : public Model {
 public:
  /// [rows, ...shape] to [rows, classes].
  virtual at::Tensor logits(const at::Tensor& inputs) = 0;
  Loss loss(const Batch& batch) final;
};

}  // namespace lockstep::models
