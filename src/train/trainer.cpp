#include "train/trainer.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>

#include <unistd.h>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "config/stored.hpp"
#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "train/algorithms.hpp"
#include "train/stored_run.hpp"

namespace lockstep::train {

namespace {

/// Greatest device memory so far, of Torch's allocator; on CPU ranks the process's resident memory.
std::int64_t memory_bytes(const Place& place) {
  if (place.cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(place.device.index());
    return stats.reserved_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
  }
  std::int64_t pages = 0;
  std::int64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident_pages;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

data::LoaderSettings loader_settings(const config::TrainSettings& settings, const Course& course,
                                     std::int64_t accumulation, const Place& place,
                                     const mpi::Communicator& world) {
  data::LoaderSettings loader;
  loader.rank = world.rank();
  loader.world = world.size();
  loader.first_step = course.first_step;
  loader.end_step = course.last_step;
  loader.prefetch = settings.data.prefetch;
  loader.accumulation = accumulation;
  loader.augment_shift = settings.data.augment_shift;
  if (place.cuda()) {
    loader.allocate = [](std::int64_t bytes) {
      auto pinned = std::make_shared<cuda::PinnedBuffer>(bytes);
      return std::shared_ptr<void>(pinned, pinned->data());
    };
  }
  return loader;
}

}  // namespace

std::int64_t accumulation_of(std::int64_t global_batch, std::int64_t micro_batch, std::int64_t world_size) {
  if (micro_batch <= 0) return 1;
  const std::int64_t largest_share = (global_batch + world_size - 1) / world_size;
  return (largest_share + micro_batch - 1) / micro_batch;
}

Trainer::Trainer(const config::TrainSettings& settings, Learner& learner, Course course, const Place& place,
                 const mpi::Communicator& world)
    : settings_(settings),
      learner_(learner),
      course_(std::move(course)),
      place_(place),
      world_(world),
      accumulation_(accumulation_of(settings.global_batch, settings.micro_batch, world.size())),
      loader_(course_.data, course_.order, loader_settings(settings, course_, accumulation_, place, world)),
      input_(course_.data, loader_, place.device, settings.precision, accumulation_),
      reducer_(learner.parameters(), learner.ranks(), settle_reduction(settings.reduce, place),
               learner.scaler().loss_buffer()),
      step_(learner.model(), input_, reducer_, learner.scaler(), learner.optimizer(), settings.precision,
            accumulation_),
      graph_(step_, input_, settings.graph, place.cuda(),
             std::min(settings.global_batch, course_.data.rows()) * course_.data.targets_per_row()),
      results_(learner.scaler(), place.cuda()),
      last_checkpoint_(course_.checkpoint) {
  if (course_.eval_data) eval_rows_ = std::make_unique<data::Rows>(*course_.eval_data, data::Access::blocks);
}

void Trainer::run() {
  reporter_.emplace(settings_.run,
                    Consumed{course_.data.rows(), settings_.global_batch, course_.order.steps_per_epoch()},
                    speed(), course_.first_step, course_.last_step, world_.rank());
  const auto due = [&](std::int64_t every, std::int64_t step) {
    return step == course_.last_step || (every > 0 && step % every == 0);
  };
  for (std::int64_t step = course_.first_step + 1; step <= course_.last_step; ++step) {
    input_.advance();
    try {
      if (step == course_.first_step + 1 && chooses_algorithms())
        settle_algorithms(step_, settings_.run.folder, world_);
      // Random numbers of a step follow from (seed, step, rank), so that a resumed run draws the same.
      torch::manual_seed(mix_all(settings_.seed, step, world_.rank()));
      graph_.run();
    } catch (const c10::OutOfMemoryError&) {
      throw Error(ExitCode::unavailable, text("step ", step, ": ", step_.explain_too_large()));
    }
    if (const auto result = results_.push(step)) observe(*result);
    if (due(settings_.run.eval_every, step)) evaluate_after(step);
    if (due(settings_.run.checkpoint_steps, step)) save_after(step);
  }
  settle();
  reporter_->finish();
}

bool Trainer::chooses_algorithms() const {
  const bool low =
      settings_.precision == config::Precision::fp16 || settings_.precision == config::Precision::bf16;
  return place_.cuda() && low && settings_.ops != config::KernelChoice::reference &&
         learner_.model().chooses_algorithms();
}

void Trainer::observe(const StepResult& result) {
  reporter_->step(result, input_.wait_seconds(), memory_bytes(place_));
  if (result.state.gradient_norm == 0 && !zero_gradient_noted_) {
    zero_gradient_noted_ = true;
    reporter_->note(text("step ", result.step,
                         ": every gradient is exactly zero, so nothing is learnt; the loss may not ",
                         "depend on the weights, or a count or mean in the model overflowed in half"));
  }
  const auto limit = settings_.scaler.skip_limit;
  if (limit <= 0 || result.state.consecutive_skips < limit) return;
  const std::string name = learner_.parameters().first_nonfinite();
  Error error(ExitCode::internal,
              text("step ", result.step, ": the gradient was not finite in ", limit,
                   " steps in a row (--skip-limit), ", name.empty() ? "" : text("first in ", name, ", "),
                   "at loss scale ", result.state.used_loss_scale, "; ",
                   last_checkpoint_.empty() ? "there is no checkpoint"
                                            : text("the last checkpoint is ", last_checkpoint_),
                   ". Lower --lr, warm up longer, or look at the data"));
  error.mark_on_all_ranks();  // every rank sees the same states in the same order
  throw error;
}

Speed Trainer::speed() const {
  Speed speed;
  if (course_.data.tokens()) speed.tokens_per_sample = course_.data.targets_per_row();
  speed.operations_per_sample = learner_.model().operations_per_sample();
  const bool half =
      settings_.precision == config::Precision::fp16 || settings_.precision == config::Precision::bf16;
  if (!place_.cuda() || !half) return speed;
  const auto device = cuda::describe(place_.device.index());
  speed.peak_operations = cuda::peak_half_operations(device.major, device.minor) * world_.size();
  return speed;
}

/// Takes in all results before anything that reads the state.
void Trainer::settle() {
  while (const auto result = results_.drain()) observe(*result);
}

void Trainer::evaluate_after(std::int64_t step) {
  if (!eval_rows_) return;
  settle();
  last_evaluation_ =
      evaluate(learner_.model(), *eval_rows_, evaluation_batch(settings_.run.eval_batch, eval_rows_->data()),
               settings_.precision, place_.device, world_);
  reporter_->evaluation(step, *last_evaluation_);
  reporter_->pause();
}

void Trainer::save_after(std::int64_t step) {
  settle();
  if (settings_.run.check_replicas) learner_.check_replicas(step, world_);
  nlohmann::json state{{"step", step},
                       {"epoch", course_.order.epoch_of(step)},
                       {"data_fingerprint", hex(course_.data.fingerprint())},
                       {"data_rows", course_.data.rows()},
                       {"data", shape_of(course_.data)}};
  last_checkpoint_ = learner_.save(settings_.run.folder, step, std::move(state), config::to_json(settings_),
                                   settings_.run.keep_checkpoints, world_);
  reporter_->note(text("checkpoint ", last_checkpoint_));
  reporter_->pause();
}

}  // namespace lockstep::train
