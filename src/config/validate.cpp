#include "config/validate.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/flags.hpp"

namespace lockstep::config {

namespace {

void check_each(const FlagTable& flags, const std::string& command) {
  std::vector<std::string> missing;
  for (const auto& flag : flags) {
    if (is_missing(flag)) {
      missing.push_back("--" + flag.name);
    } else {
      check_range(flag, "--" + flag.name);
    }
  }
  if (!missing.empty()) throw UsageError(text("lockstep ", command, " needs ", join(missing, ", ")));
}

void check_length(const RunSettings& run) {
  if (run.steps == 0 && run.epochs == 0) {
    throw UsageError("the run has no length; give --steps N or --epochs N");
  }
  if (run.steps > 0 && run.epochs > 0) {
    throw UsageError(
        text("--steps ", run.steps, " and --epochs ", run.epochs, " both give the run a length; give one"));
  }
}

void check_batches(const TrainSettings& s, std::int64_t ranks) {
  if (s.micro_batch == 0) return;
  std::int64_t together = 0;  // samples of one forward pass on all ranks
  if (__builtin_mul_overflow(ranks, s.micro_batch, &together)) {
    throw UsageError(text("--micro-batch ", s.micro_batch, " times ", ranks, " ranks is too large a number"));
  }
  if (s.global_batch % together == 0) return;
  const std::int64_t below = s.global_batch / together * together;
  const std::string nearest_fits = below == 0 ? text(together, " is the smallest that fits")
                                              : text(below, " and ", below + together, " fit");
  throw UsageError(text("--global-batch ", s.global_batch, " is not a multiple of ", together, " = ",
                        count_of(ranks, "rank", "ranks"), " x --micro-batch ", s.micro_batch, "; ",
                        nearest_fits));
}

void check_schedule(const TrainSettings& s) {
  const auto& schedule = s.schedule;
  const bool stable = schedule.kind == ScheduleKind::warmup_stable_decay;
  if (schedule.decay_steps > 0 && !stable) {
    throw UsageError(text("--decay-steps ", schedule.decay_steps,
                          " belongs to --schedule warmup-stable-decay, but the", " schedule is ",
                          word(schedule.kind)));
  }
  if (schedule.final_fraction > 0 && schedule.kind == ScheduleKind::constant) {
    throw UsageError(text("--final-lr-fraction ", schedule.final_fraction,
                          " belongs to a schedule that decays, but the schedule is constant"));
  }
  const std::int64_t length = schedule.steps > 0 ? schedule.steps : s.run.steps;
  if (length == 0) return;  // in epochs: only the data set knows
  const std::string name = schedule.steps > 0 ? "--schedule-steps" : "--steps";
  if (schedule.warmup_steps > length) {
    throw UsageError(
        text("--warmup-steps ", schedule.warmup_steps, " is longer than the schedule, ", name, " ", length));
  }
  if (stable && schedule.decay_steps > length - schedule.warmup_steps) {
    throw UsageError(text("--warmup-steps ", schedule.warmup_steps, " and --decay-steps ",
                          schedule.decay_steps, " together are longer than the schedule, ", name, " ",
                          length));
  }
}

void check_scaler(const ScalerSettings& scaler) {
  if (scaler.min_scale <= scaler.init_scale && scaler.init_scale <= scaler.max_scale) return;
  throw UsageError(text("--init-scale ", scaler.init_scale, " is not between --min-scale ", scaler.min_scale,
                        " and --max-scale ", scaler.max_scale));
}

// What was asked for by name is done or refused, never quietly replaced.
void check_modes(const TrainSettings& s) {
  if (s.device == DeviceKind::cpu && s.precision == Precision::tf32) {
    throw UsageError("--precision tf32 is a mode of GPUs; with --device cpu use fp32");
  }
  if (s.device == DeviceKind::cpu && s.graph == GraphMode::on) {
    throw UsageError("--graph on captures a CUDA graph, which --device cpu cannot; use --graph auto");
  }
  if (s.run.eval_every > 0 && s.data.eval_path.empty()) {
    throw UsageError(text("--eval-every ", s.run.eval_every, " needs --eval-data PATH"));
  }
}

}  // namespace

void validate(const TrainSettings& settings, int world_size) {
  TrainSettings copy = settings;
  check_each(bind(copy), "train");
  check_length(settings.run);
  check_batches(settings, world_size);
  check_schedule(settings);
  check_scaler(settings.scaler);
  check_modes(settings);
}

void validate(const EvalSettings& settings) {
  EvalSettings copy = settings;
  check_each(bind(copy), "eval");
}

void validate(const GenerateSettings& settings) {
  GenerateSettings copy = settings;
  check_each(bind(copy), "generate");
  if (settings.prompt.empty() || settings.prompt_file.empty()) return;
  throw UsageError(text("--prompt ", settings.prompt, " and --prompt-file ", settings.prompt_file,
                        " both give the text to go on from; give one"));
}

}  // namespace lockstep::config
