#include "models/model.hpp"

#include "ops/cross_entropy.hpp"

namespace lockstep::models {

Loss Classifier::loss(const Batch& batch) {
  const at::Tensor outputs = logits(batch.inputs);
  Loss loss;
  loss.sum = ops::cross_entropy_sum(outputs, batch.targets);
  if (!is_training()) loss.correct = outputs.argmax(1).eq(batch.targets).sum();
  return loss;
}

}  // namespace lockstep::models
