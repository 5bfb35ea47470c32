#include "train/evaluate.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "data/order.hpp"
#include "precision/autocast.hpp"
#include "train/input.hpp"

namespace lockstep::train {

namespace {

/// One batch in, its loss sum and right predictions out (-1: the model does not tell).
class BatchEvaluator {
 public:
  BatchEvaluator(models::Model& model, data::Rows& rows, std::int64_t batch, config::Precision precision,
                 at::Device device)
      : model_(model),
        rows_(rows),
        precision_(precision),
        device_(device),
        normalise_(rows.data(), device, precision),
        inputs_(at::empty({batch * rows.data().input_row_bytes()}, at::kByte)),
        targets_(at::empty({batch}, at::kLong)) {}

  std::pair<double, std::int64_t> operator()(std::int64_t first, std::int64_t count) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), first);
    rows_.read(numbers, inputs_.data_ptr(), targets_.data_ptr<std::int64_t>());
    const auto raw = raw_inputs(rows_.data(), inputs_.data_ptr(), count, at::kCPU).to(device_);
    const models::Batch batch =
        rows_.data().tokens() ? token_batch(raw)
                              : models::Batch{normalise_(raw), targets_.narrow(0, 0, count).to(device_)};
    const precision::AutocastScope autocast(precision_, device_.is_cuda());
    const models::Loss loss = model_.loss(batch);
    return {loss.sum.item<double>(), loss.correct.defined() ? loss.correct.item<std::int64_t>() : -1};
  }

 private:
  models::Model& model_;
  data::Rows& rows_;
  config::Precision precision_;
  at::Device device_;
  Normaliser normalise_;
  at::Tensor inputs_;
  at::Tensor targets_;
};

constexpr std::int64_t kDefaultRows = 256;
constexpr std::int64_t kDefaultTokens = 8192;  // logits of so many, 50,000 each, are 1.6 GB

}  // namespace

std::int64_t evaluation_batch(std::int64_t asked, const data::DataSet& data) {
  if (asked > 0) return asked;
  return data.tokens() ? std::max<std::int64_t>(1, kDefaultTokens / data.targets_per_row()) : kDefaultRows;
}

Evaluation evaluate(models::Model& model, data::Rows& rows, std::int64_t batch, config::Precision precision,
                    at::Device device, const mpi::Communicator& world) {
  torch::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const std::int64_t total = rows.data().rows();
  const std::int64_t batches = (total + batch - 1) / batch;
  const data::Share mine = data::share(batches, world.rank(), world.size());
  std::vector<double> losses(static_cast<std::size_t>(batches), 0.0);
  std::vector<std::int64_t> correct(static_cast<std::size_t>(batches), 0);
  BatchEvaluator evaluate_batch(model, rows, batch, precision, device);
  for (std::int64_t b = mine.first; b < mine.last; ++b) {
    const auto place = static_cast<std::size_t>(b);
    std::tie(losses[place], correct[place]) = evaluate_batch(b * batch, std::min(batch, total - b * batch));
  }
  // Every batch is non-zero on one rank only, so these sums are exact.
  world.sum(losses.data(), batches);
  world.sum(correct.data(), batches);
  model.train(was_training);
  const auto summed = static_cast<double>(total * rows.data().targets_per_row());
  Evaluation result{std::accumulate(losses.begin(), losses.end(), 0.0) / summed, {}, total};
  if (rows.data().tokens()) {
    result.perplexity = std::exp(result.loss);
  } else if (std::all_of(correct.begin(), correct.end(), [](std::int64_t count) { return count >= 0; })) {
    result.accuracy = static_cast<double>(std::accumulate(correct.begin(), correct.end(), std::int64_t{0})) /
                      static_cast<double>(total);
  }
  return result;
}

}  // namespace lockstep::train
