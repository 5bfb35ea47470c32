// DataSet::open: everything about a data set that could stop a step later is found here.

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "data/numbers.hpp"
#include "data/shards.hpp"
#include "hdf5/file.hpp"

namespace lockstep::data {

namespace {

constexpr const char* kFormat = "lockstep-1";
constexpr std::int64_t kBlockBytes = 1 << 20;  // a row block of contiguous data
constexpr std::int64_t kScanRows = 1 << 16;    // labels looked at together
constexpr Scalar kTokenScalars[] = {Scalar::uint16, Scalar::uint32, Scalar::int32};

std::vector<std::string> shard_paths(const std::string& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) {
    throw DataError(path, "", -1, "no such folder or file; lockstep pack makes a data set",
                    ExitCode::input_missing);
  }
  if (!std::filesystem::is_directory(status)) return {path};
  std::vector<std::string> paths;
  auto entries = std::filesystem::directory_iterator(path, failure);
  if (failure) throw DataError(path, "", -1, "cannot be listed: " + failure.message(), ExitCode::permission);
  for (const auto& entry : entries) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".h5" || ending == ".hdf5") paths.push_back(entry.path().string());
  }
  if (paths.empty()) {
    throw DataError(path, "", -1, "holds no *.h5 or *.hdf5 shard; lockstep pack makes some",
                    ExitCode::input_missing);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// One shard as its file tells it.
struct Found {
  Shard shard;
  bool tokens = false;
  Shape input_shape;
  Scalar input_scalar = Scalar::uint8;
  Scalar target_scalar = Scalar::uint8;
  std::int64_t classes = 0;
  std::string tokenizer_hash;
  std::vector<double> mean;
  std::vector<double> std_deviation;
};

// `contiguous_rows`: rows of a block where the file has no chunks to go by.
Storage storage_of(const hdf5::Dataset& dataset, std::int64_t contiguous_rows, std::int64_t file_bytes) {
  if (!dataset.is_complete()) {
    throw DataError(dataset.path(), dataset.name(), -1,
                    "was never written in whole, and would read as fill values; pack the shard again");
  }
  for (const hdf5::Filter& filter : dataset.filters()) {
    if (filter.available) continue;
    throw DataError(
        dataset.path(), dataset.name(), -1,
        text("needs HDF5 filter ", filter.id, " (", filter.name.empty() ? "unnamed" : filter.name,
             "), which this machine does not have; install its plug-in and set HDF5_PLUGIN_PATH, or rewrite "
             "the shard with h5repack -f GZIP=4"));
  }
  Storage storage;
  storage.big_endian = dataset.big_endian();
  storage.block_rows = std::max<std::int64_t>(contiguous_rows, 1);
  if (dataset.layout() == hdf5::Layout::chunked) {
    storage.block_rows = dataset.chunk()[0];
    for (std::size_t i = 1; i < dataset.shape().size(); ++i) {
      storage.chunks_per_block *= (dataset.shape()[i] + dataset.chunk()[i] - 1) / dataset.chunk()[i];
    }
  }
  storage.offset = dataset.offset();
  const std::int64_t end = storage.offset + dataset.rows() * dataset.row_bytes();
  if (storage.offset >= 0 && end > file_bytes) {
    throw DataError(dataset.path(), dataset.name(), -1,
                    text("ends at byte ", end, ", but the file has ", file_bytes, "; copy or pack it again"));
  }
  return storage;
}

void check_labels(const hdf5::Dataset& targets, std::int64_t classes) {
  const std::int64_t element_bytes = hdf5::size_bytes(targets.scalar());
  std::vector<std::byte> stored;
  std::vector<std::int64_t> labels;
  const std::int64_t step =
      targets.layout() == hdf5::Layout::chunked
          ? std::max(kScanRows / targets.chunk()[0], std::int64_t{1}) * targets.chunk()[0]
          : kScanRows;
  for (std::int64_t first = 0; first < targets.rows(); first += step) {
    const std::int64_t rows = std::min(step, targets.rows() - first);
    stored.resize(static_cast<std::size_t>(rows * element_bytes));
    labels.resize(static_cast<std::size_t>(rows));
    targets.read(first, rows, stored.data());
    if (targets.big_endian()) swap_bytes(element_bytes, stored.data(), rows);
    to_int64(targets.scalar(), stored.data(), rows, labels.data());
    const auto wrong = std::find_if(labels.begin(), labels.end(),
                                    [&](std::int64_t label) { return label < 0 || label >= classes; });
    if (wrong == labels.end()) continue;
    throw DataError(targets.path(), targets.name(), static_cast<long>(first + (wrong - labels.begin())),
                    text("label ", *wrong, " is outside of the file's ", classes, " classes [0, ", classes,
                         "); correct it, or the attribute classes"));
  }
}

void check_normalisation(const hdf5::File& file, Found& found) {
  if (file.has_attribute("mean") != file.has_attribute("std")) {
    throw DataError(file.path(), "", -1, "has one of the attributes mean and std; give both or none");
  }
  if (!file.has_attribute("mean")) return;
  found.mean = file.reals("mean");
  found.std_deviation = file.reals("std");
  const auto channels = static_cast<std::size_t>(found.input_shape.empty() ? 1 : found.input_shape[0]);
  const auto fits = [&](std::size_t count) { return count == 1 || count == channels; };
  if (!fits(found.mean.size()) || found.mean.size() != found.std_deviation.size()) {
    throw DataError(
        file.path(), "", -1,
        text("attributes mean and std hold ", found.mean.size(), " and ", found.std_deviation.size(),
             " numbers; both must hold 1 or one for each of the ", channels, " channels"));
  }
  for (const double deviation : found.std_deviation) {
    if (deviation > 0) continue;
    throw DataError(file.path(), "", -1, text("attribute std holds ", deviation, "; it must be above 0"));
  }
}

void check_datasets(const hdf5::Dataset& inputs, const hdf5::Dataset& targets) {
  if (inputs.shape().empty())
    throw DataError(inputs.path(), "inputs", -1, "is one number; it must be [rows, ...]");
  if (inputs.row_bytes() == 0) {
    throw DataError(inputs.path(), "inputs", -1,
                    text("has shape ", hdf5::to_text(inputs.shape()), ": rows of nothing"));
  }
  if (targets.shape().size() != 1) {
    throw DataError(
        targets.path(), "targets", -1,
        text("has shape ", hdf5::to_text(targets.shape()), "; it must be [rows], one label each"));
  }
  if (!hdf5::is_integer(targets.scalar())) {
    throw DataError(targets.path(), "targets", -1,
                    text("holds ", hdf5::name(targets.scalar()), "; labels are integers"));
  }
  if (inputs.rows() != targets.rows()) {
    throw DataError(
        inputs.path(), "", -1,
        text("inputs has ", inputs.rows(), " rows, targets has ", targets.rows(), "; they must be equal"));
  }
}

void check_tokens(const hdf5::Dataset& tokens) {
  if (tokens.shape().size() != 2 || tokens.shape()[1] < 2) {
    throw DataError(tokens.path(), "tokens", -1,
                    text("has shape ", hdf5::to_text(tokens.shape()),
                         "; it must be [rows, T + 1], and a row predicts T >= 1 tokens"));
  }
  const auto* const end = std::end(kTokenScalars);
  if (std::find(std::begin(kTokenScalars), end, tokens.scalar()) == end) {
    throw DataError(tokens.path(), "tokens", -1,
                    text("holds ", hdf5::name(tokens.scalar()), "; token ids are uint16, uint32 or int32"));
  }
}

void inspect_tokens(const hdf5::File& file, Found& found) {
  if (file.has("inputs") || file.has("targets")) {
    throw DataError(file.path(), "", -1,
                    "holds tokens beside inputs or targets; a shard is of one kind, tokens or labelled rows");
  }
  const hdf5::Dataset tokens = file.dataset("tokens");
  check_tokens(tokens);
  found.tokens = true;
  found.shard.rows = tokens.rows();
  found.input_shape = {tokens.shape()[1] - 1};
  found.input_scalar = tokens.scalar();
  found.classes = file.integer("vocabulary");
  if (found.classes < 1)
    throw DataError(file.path(), "", -1, text("attribute vocabulary is ", found.classes, ", below 1"));
  if (file.has_attribute("tokenizer")) found.tokenizer_hash = file.string("tokenizer");
  found.shard.inputs = storage_of(tokens, kBlockBytes / tokens.row_bytes(), found.shard.file_bytes);
}

void inspect_labelled(const hdf5::File& file, Found& found) {
  const hdf5::Dataset inputs = file.dataset("inputs");
  const hdf5::Dataset targets = file.dataset("targets");
  check_datasets(inputs, targets);
  found.shard.rows = inputs.rows();
  found.input_shape.assign(inputs.shape().begin() + 1, inputs.shape().end());
  found.input_scalar = inputs.scalar();
  found.target_scalar = targets.scalar();
  found.classes = file.integer("classes");
  if (found.classes < 1)
    throw DataError(file.path(), "", -1, text("attribute classes is ", found.classes, ", below 1"));
  found.shard.inputs = storage_of(inputs, kBlockBytes / inputs.row_bytes(), found.shard.file_bytes);
  found.shard.targets = storage_of(targets, found.shard.inputs.block_rows, found.shard.file_bytes);
  check_normalisation(file, found);
  check_labels(targets, found.classes);
}

Found inspect(const std::string& path) {
  const hdf5::File file = hdf5::File::open(path);
  if (!file.has_attribute("format")) {
    throw DataError(path, "", -1,
                    text("has no attribute format = \"", kFormat, "\"; pack it with lockstep pack"));
  }
  if (const std::string format = file.string("format"); format != kFormat) {
    throw DataError(path, "", -1, text("has format \"", format, "\"; this version reads \"", kFormat, "\""));
  }
  Found found;
  found.shard.path = path;
  found.shard.file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  if (file.has("tokens")) {
    inspect_tokens(file, found);
  } else {
    inspect_labelled(file, found);
  }
  return found;
}

std::string to_text(const std::vector<double>& values) {
  std::vector<std::string> words;
  for (const double value : values) words.push_back(text(value));
  return values.empty() ? "missing" : join(words, " ");
}

// Names the first difference between a shard and the first one.
void check_agreement(const Found& first, const Found& other) {
  const auto refuse = [&](const char* dataset, const std::string& what, const auto& here, const auto& there) {
    throw DataError(other.shard.path, dataset, -1,
                    text("its ", what, " is ", here, ", but ", there, " in ", first.shard.path,
                         "; all shards of a data set must agree"));
  };
  const auto kind = [](const Found& shard) { return shard.tokens ? "tokens" : "labelled rows"; };
  const char* const inputs = first.tokens ? "tokens" : "inputs";
  if (other.tokens != first.tokens) refuse("", "kind", kind(other), kind(first));
  if (other.input_shape != first.input_shape) {
    refuse(inputs, "row shape", hdf5::to_text(other.input_shape), hdf5::to_text(first.input_shape));
  }
  if (other.input_scalar != first.input_scalar) {
    refuse(inputs, "type", hdf5::name(other.input_scalar), hdf5::name(first.input_scalar));
  }
  if (other.target_scalar != first.target_scalar) {
    refuse("targets", "type", hdf5::name(other.target_scalar), hdf5::name(first.target_scalar));
  }
  if (other.classes != first.classes) {
    refuse("", first.tokens ? "attribute vocabulary" : "attribute classes", other.classes, first.classes);
  }
  if (other.tokenizer_hash != first.tokenizer_hash) {
    const auto hash = [](const Found& shard) {
      return shard.tokenizer_hash.empty() ? "missing" : shard.tokenizer_hash;
    };
    refuse("", "attribute tokenizer", hash(other), hash(first));
  }
  if (other.mean != first.mean) refuse("", "attribute mean", to_text(other.mean), to_text(first.mean));
  if (other.std_deviation != first.std_deviation) {
    refuse("", "attribute std", to_text(other.std_deviation), to_text(first.std_deviation));
  }
}

}  // namespace

DataSet DataSet::open(const std::string& path) {
  std::optional<Found> first;
  DataSet data;
  for (const std::string& shard_path : shard_paths(path)) {
    Found found = inspect(shard_path);
    if (first) check_agreement(*first, found);
    found.shard.first_row = data.rows_;
    data.rows_ += found.shard.rows;
    data.shards_.push_back(found.shard);
    if (!first) first = std::move(found);
  }
  if (data.rows_ == 0) throw DataError(path, "", -1, "holds no rows in any shard");
  data.tokens_ = first->tokens;
  data.tokenizer_hash_ = first->tokenizer_hash;
  data.input_shape_ = first->input_shape;
  data.input_scalar_ = first->input_scalar;
  data.target_scalar_ = first->target_scalar;
  data.classes_ = first->classes;
  data.mean_ = first->mean;
  data.std_deviation_ = first->std_deviation;
  return data;
}

}  // namespace lockstep::data
