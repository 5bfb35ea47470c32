#pragma once

// Include after Torch.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/shards.hpp"
#include "models/model.hpp"
#include "mpi/communicator.hpp"
#include "mpi/job.hpp"
#include "ops/cross_entropy.hpp"
#include "support/shards.hpp"

namespace lockstep::test {

/// Packed shards of 4 x 4 images in ten classes, which rank 0 makes and all ranks read. Collective, its end
/// included.
class SharedData {
 public:
  SharedData(const mpi::Communicator& world, const std::vector<std::int64_t>& rows)
      : SharedData(world, [&](const std::string& path) { make_shards(path, rows); }) {}
  SharedData(const mpi::Communicator& world, const std::function<void(const std::string&)>& write)
      : world_(world) {
    std::string description;
    std::string folder;
    mpi::on_root(world, [&] {
      folder_.emplace();
      folder = folder_->path();
      write(*folder_ / "data");
      description = data::DataSet::open(*folder_ / "data").describe();
    });
    data_ = data::DataSet::from_description(world.broadcast_text(std::move(description)));
    path_ = world.broadcast_text(std::move(folder));
  }
  ~SharedData() {
    if (std::uncaught_exceptions() == 0) world_.barrier();  // nobody reads any more
  }
  SharedData(const SharedData&) = delete;
  SharedData& operator=(const SharedData&) = delete;

  const data::DataSet& set() const { return *data_; }
  /// A place for files of this test, the same on every rank.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  const mpi::Communicator& world_;
  std::optional<TemporaryFolder> folder_;
  std::optional<data::DataSet> data_;
  std::string path_;
};

/// A gradient that the next step's backward pass is to have on this rank.
struct Plant {
  float value = 0;
  std::int64_t micro = -1;        ///< in which micro-batch; -1: in none
  bool in_normalisation = false;  ///< else in a parameter that is stored in the low type
};

/// Two layers with a normalisation and dropout between them, for images of 4 x 4 in ten classes.
class SmallNet : public models::Model {
 public:
  explicit SmallNet(double dropout = 0, bool tells_correct = true)
      : first_(register_module("first", torch::nn::Linear(16, 12))),
        norm_(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({12})))),
        head_(register_module("head", torch::nn::Linear(12, 10))),
        calls_(register_buffer("calls", torch::zeros({}, at::kLong))),
        dropout_(dropout),
        tells_correct_(tells_correct) {
    first_->weight.register_hook([this](const at::Tensor& gradient) { return planted(gradient, false); });
    norm_->weight.register_hook([this](const at::Tensor& gradient) { return planted(gradient, true); });
  }

  models::Loss loss(const models::Batch& batch) override {
    at::Tensor x = torch::tanh(norm_(first_(batch.inputs.flatten(1))));
    if (is_training()) {
      ++micro_;
      calls_.add_(1);
      const at::Tensor kept = torch::rand({12}) >= dropout_;
      drawn.push_back(kept.to(at::kLong).mul(torch::pow(2, torch::arange(12))).sum().item<std::int64_t>());
      if (dropout_ > 0) x = x * kept;
    }
    const at::Tensor logits = head_(x);
    models::Loss loss;
    loss.sum = ops::cross_entropy_sum(logits, batch.targets);
    if (!is_training() && tells_correct_) loss.correct = logits.argmax(1).eq(batch.targets).sum();
    return loss;
  }

  /// For the next step.
  void plant(const Plant& what) {
    plant_ = what;
    micro_ = -1;
  }

  std::vector<std::int64_t> drawn;  ///< which units dropout kept, in each call in training

 private:
  at::Tensor planted(const at::Tensor& gradient, bool in_normalisation) const {
    if (plant_.micro != micro_ || plant_.in_normalisation != in_normalisation) return gradient;
    at::Tensor changed = gradient.clone();
    changed.view(-1)[changed.numel() - 1] = plant_.value;
    return changed;
  }

  torch::nn::Linear first_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
  at::Tensor calls_;
  double dropout_;
  bool tells_correct_;
  Plant plant_;
  std::int64_t micro_ = -1;  // of the present step
};

inline std::shared_ptr<SmallNet> small_net(std::uint64_t seed = 1, double dropout = 0) {
  torch::manual_seed(seed);
  return std::make_shared<SmallNet>(dropout);
}

}  // namespace lockstep::test
