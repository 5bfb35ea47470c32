#pragma once

#include <cstdint>
#include <limits>
#include <string>

/// All settings as plain structs. One flag table (config/flags.hpp) binds each member to its flag, its INI
/// key, its help text and its place in config.json; nothing else parses or prints settings.
namespace lockstep::config {

enum class Precision { fp32, tf32, bf16, fp16 };
enum class DeviceKind { automatic, cuda, cpu };
enum class GraphMode { automatic, on, off };
enum class OverlapMode { automatic, on, off };
enum class OptimizerKind { adamw, sgd };
enum class ScheduleKind { constant, linear, cosine, warmup_stable_decay };
enum class ShuffleMode { automatic, full, blocks, none };
enum class ProgressMode { automatic, terminal, plain, off };
enum class KernelChoice { automatic, fused, reference };

struct ModelSettings {
  std::string name;           ///< a name of the model registry
  std::int64_t hidden = 256;  ///< width of the hidden layers of `mlp`
  std::string size = "124m";  ///< of `gpt2`: 124m, 350m, 774m or 1.5b
  std::int64_t layers = 0;    ///< of `gpt2`; 0, here and below: as `size` says
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;  ///< longest sequence of `gpt2`; 0: 1024
  bool recompute = false;    ///< keep no activation inside a block of `gpt2`; compute them again instead
};

struct DataSettings {
  std::string path;       ///< folder, or one shard, of training data
  std::string eval_path;  ///< the same for evaluation; empty: none
  ShuffleMode shuffle = ShuffleMode::automatic;
  std::int64_t prefetch = 4;       ///< batches read ahead
  std::int64_t augment_shift = 0;  ///< images move by up to this many pixels, keyed by (seed, epoch, row)
};

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0.9;
  double weight_decay = 0.01;  ///< of parameters with two or more dimensions
  double clip_norm = 0;        ///< global gradient norm above which gradients are scaled down; 0: off
};

struct ScheduleSettings {
  ScheduleKind kind = ScheduleKind::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 0;        ///< applied steps over which the schedule runs; 0: the run's length
  std::int64_t decay_steps = 0;  ///< of warmup_stable_decay; 0: a tenth of `steps`
  double final_fraction = 0;     ///< of the peak learning rate, at the end of the decay
};

struct ScalerSettings {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  double min_scale = 0;  ///< floor; 0: none, as torch
  double max_scale = std::numeric_limits<float>::max();
  std::int64_t hysteresis = 1;   ///< overflows before the scale backs off, refilled by growth; 1: at once
  std::int64_t skip_limit = 50;  ///< consecutive skipped steps that end the run; 0: never
};

struct ReduceSettings {
  OverlapMode overlap = OverlapMode::automatic;
  std::int64_t first_bucket_bytes = 1 << 20;
  std::int64_t bucket_bytes = 64 << 20;
  std::int64_t max_channels =
      0;  ///< multiprocessors that NCCL may take; 0: NCCL decides, or 32 after the backward pass
};

struct RunSettings {
  std::string folder;
  std::string resume = "auto";  ///< auto, never, or the path of a checkpoint
  std::int64_t steps = 0;       ///< length in steps; 0: use epochs
  std::int64_t epochs = 0;
  std::int64_t report_every = 10;
  std::int64_t eval_every = 0;  ///< steps; 0: at the end only
  std::int64_t eval_batch = 0;  ///< samples of one forward pass of an evaluation, on one rank; 0: by kind
  std::int64_t checkpoint_steps = 0;  ///< steps between checkpoints; 0: at the end only
  std::int64_t keep_checkpoints = 2;
  bool check_replicas = false;  ///< compare the ranks' weights and moments before each checkpoint
  ProgressMode progress = ProgressMode::automatic;
};

struct TrainSettings {
  ModelSettings model;
  DataSettings data;
  OptimizerSettings optimizer;
  ScheduleSettings schedule;
  ScalerSettings scaler;
  ReduceSettings reduce;
  RunSettings run;
  std::int64_t global_batch = 0;  ///< samples of one step over all ranks and micro-batches
  std::int64_t micro_batch = 0;   ///< samples of one forward pass on one rank; 0: the rank's whole share
  Precision precision = Precision::fp16;
  DeviceKind device = DeviceKind::automatic;
  GraphMode graph = GraphMode::automatic;
  KernelChoice ops = KernelChoice::automatic;
  std::uint64_t seed = 1;
};

/// Settings of `lockstep eval`; model, precision and seed are those of the run.
struct EvalSettings {
  std::string run_folder;             ///< folder of a training run
  std::string data;                   ///< folder, or one shard
  std::string checkpoint = "latest";  ///< latest, or the path of a checkpoint of this run
  std::int64_t batch = 0;             ///< samples of one forward pass on one rank; 0: by the kind of data
  DeviceKind device = DeviceKind::automatic;
};

/// Settings of `lockstep generate`; model and precision are those of the run.
struct GenerateSettings {
  std::string run_folder;             ///< folder of a training run
  std::string prompt;                 ///< text to go on from; empty: a document begins
  std::string prompt_file;            ///< the same, read from a file
  std::string checkpoint = "latest";  ///< latest, or the path of a checkpoint of this run
  std::int64_t tokens = 200;          ///< at most; the end of a document ends the text earlier
  double temperature = 0.8;           ///< logits are divided by it; 0: always the likeliest token
  std::int64_t top_k = 40;            ///< only so many of the likeliest tokens may follow; 0: any
  std::uint64_t seed = 1;
  DeviceKind device = DeviceKind::automatic;
};

/// Settings of `lockstep pack csv`.
struct PackCsvSettings {
  std::string input;               ///< text file, one image and its label a line; plain or gzip
  std::string output;              ///< folder of the training shards
  std::string test_output;         ///< folder of the test shard
  std::string shape;               ///< of one image, channels first: "1x28x28"; or of features: "30"
  std::int64_t label_column = -1;  ///< from 0; negative counts from the end
  std::int64_t classes = 0;        ///< labels are below it; 0: one more than the largest label
  std::int64_t shards = 1;         ///< of `output`
  std::int64_t test_count = 0;     ///< samples put aside for testing, every class in proportion
  std::uint64_t seed = 1;          ///< of the split and of the order of samples
  bool overwrite = false;          ///< replace shards that are there
};

/// Settings of `lockstep pack text`.
struct PackTextSettings {
  std::string input;                 ///< one text, or a folder of *.txt; plain or gzip
  std::string output;                ///< folder of the training shards
  std::string validation_output;     ///< folder of the validation shard
  std::string tokenizer = "bytes";   ///< bytes, sentencepiece, or the path of one that is there
  std::int64_t vocabulary = 0;       ///< of a tokenizer that is to be trained
  std::int64_t sequence_length = 0;  ///< tokens that a row predicts
  std::int64_t shards = 1;           ///< of `output`
  double validation_fraction = 0;    ///< of the rows, the last ones
  bool overwrite = false;            ///< replace shards that are there
};

/// Settings of `lockstep data inspect` and `verify`, and of `lockstep checkpoint ls` and `verify`.
struct DataInspectSettings {
  std::string path;  ///< folder, or one shard
};
struct DataVerifySettings {
  std::string path;  ///< folder, or one shard
};
struct CheckpointLsSettings {
  std::string path;  ///< folder of a run
};
struct CheckpointVerifySettings {
  std::string path;  ///< folder of a run, or of one checkpoint
};

}  // namespace lockstep::config
