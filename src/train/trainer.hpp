#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "config/settings.hpp"
#include "data/loader.hpp"
#include "mpi/communicator.hpp"
#include "parallel/gradient_reducer.hpp"
#include "train/evaluate.hpp"
#include "train/learner.hpp"
#include "train/reporter.hpp"
#include "train/results.hpp"
#include "train/step_graph.hpp"

namespace lockstep::train {

/// Micro-batches of a step: every rank's share of the global batch in as few as --micro-batch allows. Pure.
std::int64_t accumulation_of(std::int64_t global_batch, std::int64_t micro_batch, std::int64_t world_size);

/// What a run trains on, from which step to which.
struct Course {
  data::DataSet data;
  data::Order order;
  std::optional<data::DataSet> eval_data;
  std::int64_t first_step;  ///< steps done before
  std::int64_t last_step;
  std::string checkpoint;  ///< that it goes on from; empty at the start of a run
};

/// The loop around the step: results, evaluations, checkpoints. Everything is collective.
class Trainer {
 public:
  Trainer(const config::TrainSettings& settings, Learner& learner, Course course, const Place& place,
          const mpi::Communicator& world);

  /// Runs the course, and leaves a checkpoint and an evaluation of its last step.
  /// Throws Error(internal) after `--skip-limit` skipped steps in a row, naming the first non-finite
  /// gradient.
  void run();

  std::string graph() const { return graph_.describe(); }
  std::int64_t accumulation() const { return accumulation_; }
  std::size_t bucket_count() const { return reducer_.buckets().size(); }
  const std::optional<Evaluation>& last_evaluation() const { return last_evaluation_; }
  const std::string& last_checkpoint() const { return last_checkpoint_; }

 private:
  Speed speed() const;
  bool chooses_algorithms() const;
  void observe(const StepResult& result);
  void settle();
  void evaluate_after(std::int64_t step);
  void save_after(std::int64_t step);

  const config::TrainSettings& settings_;
  Learner& learner_;
  Course course_;
  const Place& place_;
  const mpi::Communicator& world_;
  std::int64_t accumulation_;
  std::unique_ptr<data::Rows> eval_rows_;
  data::Loader loader_;
  Input input_;
  parallel::GradientReducer reducer_;
  Step step_;
  StepGraph graph_;
  Results results_;
  std::optional<Reporter> reporter_;  // from run() on: it writes into the run's folder
  std::optional<Evaluation> last_evaluation_;
  std::string last_checkpoint_;
  bool zero_gradient_noted_ = false;
};

}  // namespace lockstep::train
