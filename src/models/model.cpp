#include "models/model.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "ops/cross_entropy.hpp"

namespace lockstep::models {

at::Tensor Model::next_logits(const at::Tensor&) {
  throw UsageError(text("model ", name(), " predicts no tokens; take a run of --model gpt2"));
}

Loss Classifier::loss(const Batch& batch) {
  const at::Tensor outputs = logits(batch.inputs);
  Loss loss;
  loss.sum = ops::cross_entropy_sum(outputs, batch.targets);
  if (!is_training()) loss.correct = outputs.argmax(1).eq(batch.targets).sum();
  return loss;
}

}  // namespace lockstep::models
