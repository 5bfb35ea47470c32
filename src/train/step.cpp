#include "train/step.hpp"

#include "precision/autocast.hpp"
#include "train/memory_fit.hpp"

namespace lockstep::train {

void Step::run() {
  scaler_.begin();  // gradients and loss start from zero
  for (std::int64_t micro = 0; micro < accumulation_; ++micro) {
    models::Batch batch = input_.slot(micro);  // already on the device
    batch.loss_gradient = scaler_.gradient_seed(input_.global_count());
    reducer_.arm(micro + 1 == accumulation_);  // with overlap the last backward pass sends its buckets
    const models::Loss loss = forward(batch);  // sum over this rank's samples
    scaler_.scale(loss.sum, input_.global_count()).backward();
  }
  reducer_.finish();                 // the compute stream now waits for the last bucket
  scaler_.inspect();                 // non-finite flag and norm, learning rate, on the device
  optimizer_.step(scaler_.state());  // predicated: one pass writes master, moments, weight
  scaler_.update();                  // counts the step, moves the scale
}

void Step::rehearse() {
  scaler_.begin();
  for (std::int64_t micro = 0; micro < accumulation_; ++micro) try_out(input_.slot(micro));
}

void Step::try_out(models::Batch batch) {
  batch.loss_gradient = scaler_.gradient_seed(input_.global_count());
  reducer_.arm(false);
  scaler_.scale(forward(batch).sum, input_.global_count()).backward();
}

std::string Step::explain_too_large() {
  return train::explain_too_large(input_.slot(0), [this](const models::Batch& batch) { try_out(batch); });
}

models::Loss Step::forward(const models::Batch& batch) {
  const precision::AutocastScope autocast(precision_, batch.inputs.is_cuda());
  return model_.loss(batch);
}

}  // namespace lockstep::train
