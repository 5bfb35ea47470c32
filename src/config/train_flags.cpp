#include "config/flags.hpp"
#include "config/parse.hpp"

// The rows of `lockstep train`, one function per heading of --help.
namespace lockstep::config {

namespace {

void add_task(FlagTable& table, TrainSettings& s) {
  table.heading("What is trained");
  table.add("model", "NAME", &s.model.name, "model of the registry").must_be_given();
  table.add("data", "PATH", &s.data.path, "training data: a folder of HDF5 shards, or one shard")
      .may_change()
      .must_be_given();
  table
      .add("eval-data", "PATH", &s.data.eval_path,
           "evaluation data, the same way; without it nothing is evaluated")
      .may_change();
  table.add("precision", "MODE", choice(s.precision),
            "of weights, activations and gradients; masters and moments are always FP32");
  table.add("seed", "S", &s.seed, "of the initial weights, the order of samples and the augmentation");
}

void add_model(FlagTable& table, ModelSettings& s) {
  table.heading("The model");
  table.add("hidden", "N", &s.hidden, "width of the hidden layers of mlp").in(at_least(1));
  table.add("size", "NAME", &s.size, "of gpt2: 124m, 350m, 774m or 1.5b");
  table.add("layers", "N", &s.layers, "of gpt2; 0: as --size says").in(at_least(0));
  table.add("width", "N", &s.width, "of gpt2's residual stream; 0: as --size says").in(at_least(0));
  table.add("heads", "N", &s.heads, "of gpt2's attention, a divisor of the width; 0: as --size says")
      .in(at_least(0));
  table.add("context", "N", &s.context, "longest sequence that gpt2 takes, in tokens; 0: 1024")
      .in(at_least(0));
  table
      .add("recompute", "", &s.recompute,
           "gpt2 keeps only the input of each block and computes the rest again in the backward pass: less "
           "memory, a quarter to a third more time")
      .may_change();
}

void add_run(FlagTable& table, TrainSettings& s) {
  table.heading("The run");
  table.add("run", "DIR", &s.run.folder, "folder of the run: config.json, metrics.jsonl, checkpoints")
      .may_change()
      .must_be_given();
  table.add("steps", "N", &s.run.steps, "length of the run in steps; 0: given by --epochs")
      .in(at_least(0))
      .may_change();
  table
      .add("epochs", "N", &s.run.epochs,
           "length of the run in passes over the training data; 0: given by --steps")
      .in(at_least(0))
      .may_change();
  table
      .add("resume", "auto|never|PATH", &s.run.resume,
           "auto: continue the run's newest complete checkpoint, if there is one; never: begin anew; PATH: "
           "continue this checkpoint")
      .may_change();
  table
      .add("device", "KIND", choice(s.device),
           "auto: one GPU a rank where every rank sees one, else CPU ranks")
      .may_change();
}

void add_batch(FlagTable& table, TrainSettings& s) {
  table.heading("Batches");
  table
      .add("global-batch", "G", &s.global_batch,
           "samples (rows of tokens) of one step, over all ranks and micro-batches")
      .in(at_least(1))
      .must_be_given();
  table
      .add("micro-batch", "B", &s.micro_batch,
           "samples of one forward pass on one rank; 0: the rank's whole share")
      .in(at_least(0))
      .may_change();
  table.add("shuffle", "MODE", choice(s.data.shuffle),
            "order of samples; full: any row may follow any other; blocks: blocks of rows that are read "
            "together are shuffled; none: as stored; auto: full for small data sets, else blocks");
  table
      .add("augment-shift", "PIXELS", &s.data.augment_shift,
           "training images move by up to this many pixels along each side; 0: they do not")
      .in(at_least(0));
  table.add("prefetch", "N", &s.data.prefetch, "batches read ahead").in(at_least(1)).may_change();
}

void add_optimizer(FlagTable& table, OptimizerSettings& s) {
  table.heading("Optimizer");
  table.add("optimizer", "NAME", choice(s.kind), "update rule");
  table.add("lr", "X", &s.lr, "peak learning rate").in(at_least(0));
  table.add("beta1", "X", &s.beta1, "decay of adamw's first moment").in(from_to_below(0, 1));
  table.add("beta2", "X", &s.beta2, "decay of adamw's second moment").in(from_to_below(0, 1));
  table.add("epsilon", "X", &s.epsilon, "of adamw's denominator").in(above(0));
  table.add("momentum", "X", &s.momentum, "of sgd").in(from_to_below(0, 1));
  table.add("weight-decay", "X", &s.weight_decay, "of parameters with two or more dimensions")
      .in(at_least(0));
  table
      .add("clip-norm", "X", &s.clip_norm,
           "gradients of a greater global norm are scaled down to it; 0: never")
      .in(at_least(0));
}

void add_schedule(FlagTable& table, ScheduleSettings& s) {
  table.heading("Learning rate schedule");
  table.add("schedule", "SHAPE", choice(s.kind), "of the learning rate after the warm-up");
  table.add("warmup-steps", "N", &s.warmup_steps, "steps over which the learning rate rises to its peak")
      .in(at_least(0));
  table
      .add("schedule-steps", "N", &s.steps,
           "steps from the first to the end of the decay, skipped ones not counted; 0: the length of the run")
      .in(at_least(0));
  table
      .add("decay-steps", "N", &s.decay_steps, "last part of warmup-stable-decay; 0: a tenth of the schedule")
      .in(at_least(0));
  table.add("final-lr-fraction", "X", &s.final_fraction, "learning rate at the end of the decay, of the peak")
      .in(from_to(0, 1));
}

void add_scaler(FlagTable& table, ScalerSettings& s) {
  const Range scale{.least = 0, .most = std::numeric_limits<float>::max(), .least_open = true};
  table.heading("Loss scale (fp16)");
  table.add("init-scale", "X", &s.init_scale, "at the first step").in(scale);
  table
      .add("growth-factor", "X", &s.growth_factor,
           "the scale is multiplied by it after --growth-interval clean steps")
      .in(above(1));
  table.add("backoff-factor", "X", &s.backoff_factor, "the scale is multiplied by it when gradients overflow")
      .in(between(0, 1));
  table.add("growth-interval", "N", &s.growth_interval, "clean steps in a row before the scale grows")
      .in(at_least(1));
  table.add("min-scale", "X", &s.min_scale, "floor of the scale; 0: none").in(from_to(0, scale.most));
  table.add("max-scale", "X", &s.max_scale, "ceiling of the scale; the default is the largest float")
      .in(scale);
  table.add("hysteresis", "N", &s.hysteresis, "overflows before the scale backs off; 1: at once")
      .in(at_least(1));
  table.add("skip-limit", "N", &s.skip_limit, "skipped steps in a row that end the run; 0: never")
      .in(at_least(0));
}

void add_reduce(FlagTable& table, TrainSettings& s) {
  table.heading("Gradient reduction");
  table
      .add("overlap", "MODE", choice(s.reduce.overlap),
           "reduce gradients while the backward pass still runs; auto: unless all ranks are Hopper GPUs of "
           "one host, which reduce all at once after it")
      .may_change();
  table
      .add("first-bucket-bytes", "BYTES", Bytes{&s.reduce.first_bucket_bytes},
           "size of the first bucket, small so that reduction begins early; none where --overlap auto "
           "reduces all at once")
      .in(at_least(1))
      .may_change();
  table
      .add("bucket-bytes", "BYTES", Bytes{&s.reduce.bucket_bytes},
           "size of the others; each ends with the parameter that makes it that large; none where --overlap "
           "auto reduces all at once")
      .in(at_least(1))
      .may_change();
  table
      .add("max-channels", "N", &s.reduce.max_channels,
           "multiprocessors that NCCL may take; 0: NCCL decides, but 32 on one host of Hopper GPUs after the "
           "backward pass")
      .in(at_least(0))
      .may_change();
  table
      .add("graph", "MODE", choice(s.graph),
           "capture the whole step as one CUDA graph; auto: where it can be")
      .may_change();
  table
      .add("ops", "CHOICE", choice(s.ops),
           "of gpt2's layers; fused: our CUDA kernels, cuBLASLt and cuDNN, or an error; reference: plain "
           "LibTorch; "
           "auto: fused where the device, the precision and the sizes allow")
      .may_change();
}

void add_reports(FlagTable& table, RunSettings& s) {
  table.heading("Reports and checkpoints");
  table.add("report-every", "K", &s.report_every, "steps between reports").in(at_least(1)).may_change();
  table.add("eval-every", "K", &s.eval_every, "steps between evaluations; 0: at the end only")
      .in(at_least(0))
      .may_change();
  table
      .add("eval-batch", "N", &s.eval_batch,
           "samples of one forward pass of an evaluation, on one rank; 0: 256, or as many rows of tokens as "
           "hold 8192")
      .in(at_least(0))
      .may_change();
  table.add("checkpoint-steps", "K", &s.checkpoint_steps, "steps between checkpoints; 0: at the end only")
      .in(at_least(0))
      .may_change();
  table
      .add("check-replicas", "", &s.check_replicas,
           "before each checkpoint, compare a hash of every rank's weights and moments; exit code 76 where "
           "they "
           "differ")
      .may_change();
  table.add("keep-checkpoints", "N", &s.keep_checkpoints, "newest checkpoints that are kept; 0: all")
      .in(at_least(0))
      .may_change();
  table
      .add("progress", "MODE", choice(s.progress),
           "terminal: one line, drawn again; plain: a line per report; auto: what standard output is")
      .may_change();
}

}  // namespace

FlagTable bind(TrainSettings& settings) {
  FlagTable table;
  add_task(table, settings);
  add_model(table, settings.model);
  add_run(table, settings);
  add_batch(table, settings);
  add_optimizer(table, settings.optimizer);
  add_schedule(table, settings.schedule);
  add_scaler(table, settings.scaler);
  add_reduce(table, settings);
  add_reports(table, settings.run);
  return table;
}

Command describe(const TrainSettings&) {
  return {.name = "train",
          .summary = "train a model on HDF5 shards, one rank per GPU or per CPU process",
          .usage = "--model NAME --data PATH --run DIR --global-batch G (--steps N | --epochs N) [flags]",
          .reads_ini = true,
          .resumes = true};
}

}  // namespace lockstep::config
