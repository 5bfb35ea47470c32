#include "models/model.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "models/registry.hpp"
#include "ops/cross_entropy.hpp"

namespace lockstep::models {

at::Tensor Model::next_logits(const at::Tensor& tokens, Past* past) {
  throw UsageError(
      "this model predicts no tokens, so it cannot generate text; train one that does, on token data");
}

void refuse_tokens(const ModelRequest& request) {
  if (!request.tokens) return;
  throw UsageError(text("--model ", request.settings.name,
                        " takes images or features with a label each, but the data ", "are rows of ",
                        request.input_shape.at(0), " tokens; take --model gpt2, or other data"));
}

Loss Classifier::loss(const Batch& batch) {
  const at::Tensor outputs = logits(batch.inputs);
  Loss loss;
  loss.sum = ops::cross_entropy_sum(outputs, batch.targets);
  if (!is_training()) loss.correct = outputs.argmax(1).eq(batch.targets).sum();
  return loss;
}

}  // namespace lockstep::models
