#include "train/run.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "config/flags.hpp"
#include "config/stored.hpp"
#include "config/validate.hpp"
#include "hdf5/dataset.hpp"
#include "mpi/job.hpp"
#include "ops/kernel_choice.hpp"
#include "train/run_folder.hpp"
#include "train/stored_run.hpp"
#include "train/trainer.hpp"

namespace lockstep::train {

namespace {

/// Rank 0 opens and checks; the others get the description.
data::DataSet open_everywhere(const std::string& path, const mpi::Communicator& world) {
  std::string description;
  mpi::on_root(world, [&] { description = data::DataSet::open(path).describe(); });
  return data::DataSet::from_description(world.broadcast_text(std::move(description)));
}

void check_same_data(const nlohmann::json& state, const data::DataSet& data, const std::string& path) {
  const std::string stored = state.at("data_fingerprint").get<std::string>();
  if (stored == hex(data.fingerprint())) return;
  throw UsageError(text("--data ", path, " is not the data of this run: it has ", data.rows(),
                        " rows and fingerprint ", hex(data.fingerprint()), ", the checkpoint was made on ",
                        state.at("data_rows").get<std::int64_t>(), " rows with fingerprint ", stored),
                   ExitCode::configuration);
}

void check_eval_fits(const data::DataSet& data, const data::DataSet& eval) {
  if (data.tokens() != eval.tokens()) {
    const auto kind = [](const data::DataSet& set) { return set.tokens() ? "tokens" : "labelled rows"; };
    throw UsageError(
        text("--eval-data holds ", kind(eval), ", --data holds ", kind(data), "; they must be of one kind"),
        ExitCode::bad_data);
  }
  if (data.tokenizer_hash() != eval.tokenizer_hash()) {
    throw UsageError(text("--eval-data was made by tokenizer ", eval.tokenizer_hash(), ", --data by ",
                          data.tokenizer_hash(), "; pack both with one (--tokenizer FOLDER OF THE OTHER)"),
                     ExitCode::bad_data);
  }
  if (data.input_shape() == eval.input_shape() && data.classes() == eval.classes()) return;
  throw UsageError(
      text("--eval-data has ", eval.classes(), " classes and rows of shape ",
           hdf5::to_text(eval.input_shape()), ", --data has ", data.classes(), " classes and rows of shape ",
           hdf5::to_text(data.input_shape()), "; they must be equal"),
      ExitCode::bad_data);
}

/// A run on text evaluates text of its own tokenizer: ids of another mean other words.
void check_same_tokenizer(const data::DataSet& data, const config::EvalSettings& settings,
                          const mpi::Communicator& world) {
  std::string own;
  mpi::on_root(world, [&] {
    if (std::filesystem::exists(settings.run_folder + "/" + data::kTokenizerFile))
      own = data::Tokenizer::load(settings.run_folder).hash();
  });
  own = world.broadcast_text(std::move(own));
  if (data.tokenizer_hash().empty() || own.empty() || data.tokenizer_hash() == own) return;
  throw UsageError(text("--data ", settings.data, " was made by tokenizer ", data.tokenizer_hash(),
                        ", --run ", settings.run_folder, " was trained with ", own,
                        "; pack it with the run's (--tokenizer ", settings.run_folder, ")"),
                   ExitCode::bad_data);
}

/// Which form a transformer's ops take, and why. Throws UsageError where --ops fused cannot be had.
std::string ops_in_use(const config::TrainSettings& settings, const Place& place) {
  if (settings.ops == config::KernelChoice::reference) return "reference (--ops reference)";
  const auto type = settings.precision == config::Precision::fp16   ? at::kHalf
                    : settings.precision == config::Precision::bf16 ? at::kBFloat16
                                                                    : at::kFloat;
  const at::Tensor probe = at::empty({0}, at::TensorOptions().device(place.device).dtype(type));
  if (ops::use_fused(
          probe, [] { return true; }, ""))
    return "fused";
  return "reference (fused ones need fp16 or bf16 on a GPU of compute capability 8.0 or newer)";
}

void introduce(const config::TrainSettings& settings, Learner& learner, const Trainer& trainer,
               const Course& course, const Place& place, const mpi::Communicator& world) {
  if (world.rank() != 0) return;
  std::cout << "lockstep train: " << settings.model.name << " with " << learner.parameter_count()
            << " parameters in " << config::word(settings.precision)
            << (place.cuda() ? "" : " (storage; CPU ranks compute in fp32)") << "\n"
            << place.table << "\n"
            << "reduction: " << learner.ranks().describe() << ", "
            << count_of(trainer.bucket_count(), "bucket", "buckets") << ", overlap "
            << config::word(settle_reduction(settings.reduce, place).overlap) << "\n"
            << "global batch " << settings.global_batch << " = " << count_of(world.size(), "rank", "ranks")
            << ", " << count_of(trainer.accumulation(), "micro-batch", "micro-batches")
            << " a step; CUDA graph: " << trainer.graph() << "\n"
            << (learner.model().chooses_algorithms() ? text("ops: ", ops_in_use(settings, place), "\n") : "")
            << "data: " << course.data.rows() << " rows"
            << (course.data.tokens() ? text(" of ", course.data.targets_per_row(), " tokens") : "") << " in "
            << count_of(static_cast<std::int64_t>(course.data.shards().size()), "shard", "shards") << ", "
            << count_of(course.order.steps_per_epoch(), "step", "steps") << " an epoch; steps "
            << course.first_step + 1 << " to " << course.last_step << std::endl;
}

/// "validation loss 1.2345 a token, perplexity 3.44".
std::string perplexity_line(const Evaluation& result) {
  char line[96];
  std::snprintf(line, sizeof line, "validation loss %.4f a token, perplexity %.2f", result.loss,
                *result.perplexity);
  return line;
}

void conclude(const config::TrainSettings& settings, const Trainer& trainer, const Stopwatch& clock,
              std::int64_t last_step, const mpi::Communicator& world) {
  if (world.rank() != 0) return;
  mark_complete(settings.run.folder, last_step);
  std::cout << "done: " << last_step << " steps in " << format_seconds(clock.seconds()) << "\n";
  if (const auto& result = trainer.last_evaluation(); result && result->accuracy) {
    char line[64];
    std::snprintf(line, sizeof line, "test accuracy: %.2f %%", 100 * *result->accuracy);
    std::cout << line << " of " << result->rows << " samples\n";
  } else if (result && result->perplexity) {
    std::cout << perplexity_line(*result) << "\n";
  }
  std::cout << "metrics: " << settings.run.folder << "/metrics.jsonl\n"
            << "checkpoint: " << trainer.last_checkpoint() << std::endl;
}

constexpr std::int64_t kMostSteps = 1'000'000'000;  // every step has its learning rate in a table

std::int64_t last_step_of(const config::TrainSettings& settings, std::int64_t steps_per_epoch) {
  const config::RunSettings& run = settings.run;
  std::int64_t last_step = run.steps;
  if (last_step == 0 && __builtin_mul_overflow(run.epochs, steps_per_epoch, &last_step))
    last_step = kMostSteps + 1;
  if (last_step > kMostSteps) {
    throw UsageError(run.steps > 0 ? text("--steps ", run.steps, " is more than ", kMostSteps)
                                   : text("--epochs ", run.epochs, " of ", steps_per_epoch,
                                          " steps each are more than ", kMostSteps, " steps"));
  }
  if (settings.schedule.steps > kMostSteps) {
    throw UsageError(text("--schedule-steps ", settings.schedule.steps, " is more than ", kMostSteps));
  }
  return last_step;
}

int nothing_to_do(const config::TrainSettings& settings, const RunFolder& found, std::int64_t last_step,
                  const mpi::Communicator& world) {
  log::info(text("nothing to do: step ", found.step, " of ", last_step, " is reached (", *found.checkpoint,
                 "); ask for more --steps or --epochs, or take another --run folder"));
  // Whoever was stopped after the last checkpoint left no mark.
  const bool own = settings.run.resume == "auto";
  if (own && !found.complete) mpi::on_root(world, [&] { mark_complete(settings.run.folder, found.step); });
  return 0;
}

}  // namespace

int run_training(const config::TrainSettings& settings, const mpi::Communicator& world) {
  mpi::check_launch(world);
  mpi::check_settings_alike(world, config::settings_text(settings));
  config::validate(settings, world.size());
  const Stopwatch clock;
  const Place place = choose_place(settings.device, world);
  if (settings.precision == config::Precision::tf32 && !place.cuda())
    throw UsageError("--precision tf32 is a mode of GPUs, and this run has CPU ranks; take fp32");
  const data::DataSet data = open_everywhere(settings.data.path, world);
  std::optional<data::DataSet> eval_data;
  if (!settings.data.eval_path.empty()) {
    eval_data = open_everywhere(settings.data.eval_path, world);
    check_eval_fits(data, *eval_data);
  }
  std::optional<data::Tokenizer> tokenizer;
  mpi::on_root(world, [&] { tokenizer = tokenizer_beside(data, settings.data.path); });
  const data::Order order(data.row_blocks(), settings.seed, settings.global_batch, settings.data.shuffle);
  const std::int64_t last_step = last_step_of(settings, order.steps_per_epoch());

  Learner learner(settings, data, last_step, place, world);
  if (settings.ops == config::KernelChoice::fused) ops_in_use(settings, place);
  const RunFolder found = find_run(settings, world);
  if (found.checkpoint) check_same_data(learner.load(*found.checkpoint, world), data, settings.data.path);
  if (found.step >= last_step) return nothing_to_do(settings, found, last_step, world);
  const Course course{data, order, eval_data, found.step, last_step, found.checkpoint.value_or("")};
  Trainer trainer(settings, learner, course, place, world);
  enter_run(settings, found, world);
  if (tokenizer) tokenizer->save(settings.run.folder);
  introduce(settings, learner, trainer, course, place, world);
  trainer.run();
  mpi::on_root(world, [&] { conclude(settings, trainer, clock, last_step, world); });
  return 0;
}

int run_evaluation(const config::EvalSettings& settings, const mpi::Communicator& world) {
  mpi::check_launch(world);
  mpi::check_settings_alike(world, config::settings_text(settings));
  config::validate(settings);
  const Place place = choose_place(settings.device, world);
  const data::DataSet data = open_everywhere(settings.data, world);
  const StoredRun run = find_stored_run(settings.run_folder, settings.checkpoint, world);
  check_same_tokenizer(data, settings, world);
  config::TrainSettings stored = run.settings;
  if (stored.ops == config::KernelChoice::fused)
    stored.ops = config::KernelChoice::automatic;  // any device evaluates
  Learner learner(stored, data, std::max<std::int64_t>(1, stored.run.steps), place, world);
  learner.load(run.checkpoint, world);
  data::Rows rows(data, data::Access::blocks);
  const Evaluation result = evaluate(learner.model(), rows, evaluation_batch(settings.batch, data),
                                     run.settings.precision, place.device, world);
  if (world.rank() != 0) return 0;
  char line[128];
  std::snprintf(line, sizeof line, "eval loss %.6f", result.loss);
  std::cout << line;
  if (result.accuracy) {
    std::snprintf(line, sizeof line, ", accuracy %.2f %%", 100 * *result.accuracy);
    std::cout << line;
  }
  if (result.perplexity) {
    std::snprintf(line, sizeof line, " a token, perplexity %.4f", *result.perplexity);
    std::cout << line;
  }
  std::cout << " over " << result.rows << " rows of " << settings.data << "\ncheckpoint: " << run.checkpoint
            << std::endl;
  return 0;
}

}  // namespace lockstep::train
