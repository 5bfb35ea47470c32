#include "config/flags.hpp"
#include "config/parse.hpp"

// The rows of every command but `lockstep train`.
namespace lockstep::config {

namespace {

FlagTable path_alone(std::string& path, const std::string& help) {
  FlagTable table;
  table.heading("What is read");
  table.add("PATH", "PATH", &path, help).must_be_given().without_a_name();

  return table;
}

}  // namespace

FlagTable bind(EvalSettings& s) {
  FlagTable table;
  table.heading("What is evaluated");
  table.add("run", "DIR", &s.run_folder, "folder of a training run").must_be_given();
  table.add("data", "PATH", &s.data, "a folder of HDF5 shards, or one shard").must_be_given();
  table.add("checkpoint", "latest|PATH", &s.checkpoint,
            "latest: the run's newest complete checkpoint; PATH: this one");
  table
      .add("batch", "B", &s.batch,
           "samples of one forward pass on one rank; 0: 256, or as many rows of tokens as hold 8192")
      .in(at_least(0));
  table.add("device", "KIND", choice(s.device),
            "auto: one GPU a rank where every rank sees one, else CPU ranks");

  return table;
}

Command describe(const EvalSettings&) {
  return {.name = "eval",
          .summary = "evaluate a run's checkpoint on a data set",
          .usage = "--run DIR --data PATH [flags]",
          .reads_ini = true};
}

FlagTable bind(GenerateSettings& s) {
  FlagTable table;
  table.heading("What is written");
  table.add("run", "DIR", &s.run_folder, "folder of a training run on text").must_be_given();
  table.add("prompt", "TEXT", &s.prompt, "text to go on from; none: a document begins");
  table.add("prompt-file", "FILE", &s.prompt_file, "the same from a file, of any number of lines");
  table.add("checkpoint", "latest|PATH", &s.checkpoint,
            "latest: the run's newest complete checkpoint; PATH: this one");
  table
      .add("tokens", "N", &s.tokens, "tokens to write; the text ends earlier where the model ends a document")
      .in(at_least(1));
  table.heading("How tokens are chosen");
  table
      .add("temperature", "X", &s.temperature,
           "below 1 likely tokens become likelier, above 1 rarer; 0: always the likeliest")
      .in(at_least(0));
  table.add("top-k", "K", &s.top_k, "choose among the K likeliest tokens; 0: among all").in(at_least(0));
  table.add("seed", "S", &s.seed, "of the choices: the same seed writes the same text");
  table.add("device", "KIND", choice(s.device), "auto: a GPU where there is one, else the CPU");

  return table;
}

Command describe(const GenerateSettings&) {
  return {.name = "generate",
          .summary = "write text with a run's checkpoint, in one process",
          .usage = "--run DIR [--prompt TEXT] [flags]",
          .reads_ini = true};
}

FlagTable bind(PackTextSettings& s) {
  FlagTable table;
  table.heading("What is read");
  table
      .add("input", "FILE|DIR", &s.input,
           "a text file, or a folder of *.txt, each one document; plain or gzip, UTF-8 for sentencepiece")
      .must_be_given();
  table.add(
      "tokenizer", "bytes|sentencepiece|PATH", &s.tokenizer,
      "bytes: one token a byte; sentencepiece: trained on the text; PATH: a SentencePiece model file, or a "
      "packed folder whose tokenizer to take");
  table.add("vocabulary", "N", &s.vocabulary, "tokens of --tokenizer sentencepiece, such as 8192")
      .in(from_to(0, 2147483647));

  table.heading("What is written");
  table.add("output", "DIR", &s.output, "folder of the training shards and the tokenizer").must_be_given();
  table.add("sequence-length", "T", &s.sequence_length, "tokens that one row predicts")
      .in(at_least(1))
      .must_be_given();
  table.add("shards", "N", &s.shards, "training shards").in(at_least(1));
  table.add("validation-output", "DIR", &s.validation_output,
            "folder of the validation shard; goes with --validation-fraction");
  table
      .add("validation-fraction", "F", &s.validation_fraction,
           "part of the rows put aside for validation, the last ones")
      .in(from_to_below(0, 1));
  table.add("overwrite", "", &s.overwrite, "replace shards that are there");

  return table;
}

Command describe(const PackTextSettings&) {
  return {.name = "pack text",
          .summary = "make HDF5 shards of tokens from text files",
          .usage = "--input FILE|DIR --output DIR --sequence-length T [flags]",
          .reads_ini = true};
}

FlagTable bind(PackCsvSettings& s) {
  FlagTable table;
  table.heading("What is read");
  table
      .add("input", "FILE", &s.input,
           "text file with one image and its label a line, values whole numbers from 0 to 255; plain or gzip")
      .must_be_given();
  table
      .add("shape", "CxHxW", &s.shape,
           "of one image, channels first, such as 1x28x28; or the number of features")
      .must_be_given();
  table.add("label-column", "N", &s.label_column,
            "column of the label, the first is 0; a negative number counts from the end");
  table.add("classes", "N", &s.classes, "labels are 0 to N-1; 0: one more than the largest label")
      .in(at_least(0));

  table.heading("What is written");
  table.add("output", "DIR", &s.output, "folder of the training shards").must_be_given();
  table.add("shards", "N", &s.shards, "training shards").in(at_least(1));
  table.add("test-output", "DIR", &s.test_output, "folder of the test shard; goes with --test-count");
  table.add("test-count", "N", &s.test_count, "samples put aside for testing, every class in proportion")
      .in(at_least(0));
  table.add("seed", "S", &s.seed, "of the split and of the order of samples");
  table.add("overwrite", "", &s.overwrite, "replace shards that are there");

  return table;
}

Command describe(const PackCsvSettings&) {
  return {.name = "pack csv",
          .summary = "make HDF5 shards from images or features in a CSV file",
          .usage = "--input FILE --shape CxHxW --output DIR [flags]",
          .reads_ini = true};
}

FlagTable bind(DataInspectSettings& s) {
  return path_alone(s.path, "a folder of HDF5 shards, or one shard");
}

Command describe(const DataInspectSettings&) {
  return {
      .name = "data inspect", .summary = "show what a data set holds and how it is stored", .usage = "PATH"};
}

FlagTable bind(DataVerifySettings& s) {
  return path_alone(s.path, "a folder of HDF5 shards, or one shard");
}

Command describe(const DataVerifySettings&) {
  return {.name = "data verify", .summary = "read every row of a data set and check it", .usage = "PATH"};
}

FlagTable bind(CheckpointLsSettings& s) {
  return path_alone(s.path, "folder of a run");
}

Command describe(const CheckpointLsSettings&) {
  return {.name = "checkpoint ls", .summary = "list the checkpoints of a run", .usage = "PATH"};
}

FlagTable bind(CheckpointVerifySettings& s) {
  return path_alone(s.path, "folder of a run, or of one checkpoint");
}

Command describe(const CheckpointVerifySettings&) {
  return {.name = "checkpoint verify",
          .summary = "check every byte of checkpoints against their checksums",
          .usage = "PATH"};
}

}  // namespace lockstep::config
