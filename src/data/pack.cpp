#include "data/pack.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "data/csv.hpp"
#include "data/gzip.hpp"
#include "data/order.hpp"
#include "data/pack_folder.hpp"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;

// Keys of independent choices.
enum class Purpose : std::uint64_t { split = 32, order = 33 };

void check_settings(const PackCsv& settings) {
  const auto refuse = [](const auto&... words) { throw UsageError(text(words...)); };
  if (settings.shape.empty()) refuse("packing needs the shape of one row, such as 1x28x28");
  std::int64_t values = 1;
  for (const std::int64_t extent : settings.shape) {
    if (extent < 1 || __builtin_mul_overflow(values, extent, &values)) {
      refuse("rows of shape ", hdf5::to_text(settings.shape), " cannot be packed");
    }
  }
  if (settings.shards < 1) refuse("data cannot be packed into ", settings.shards, " shards");
  if (settings.test_count < 0) refuse(settings.test_count, " rows cannot be put aside for testing");
  if (settings.output.empty()) refuse("packing needs an output folder");
  if (settings.test_count > 0 && settings.test_output.empty()) {
    refuse(settings.test_count, " rows are to be put aside for testing, but no folder for them is given");
  }
  if (settings.test_count > 0 && folder_path(settings.output) == folder_path(settings.test_output)) {
    refuse("training and test shards cannot share the folder ", settings.output);
  }
}

struct Split {
  std::vector<std::int64_t> train;  // rows of the CSV file
  std::vector<std::int64_t> test;
};

// Test rows of each class: its exact proportion rounded down, and one more for the largest remainders (lower
// class first).
std::vector<std::int64_t> test_counts(const std::vector<std::int64_t>& class_rows, std::int64_t test_count) {
  const std::int64_t rows = std::accumulate(class_rows.begin(), class_rows.end(), std::int64_t{0});
  std::vector<std::int64_t> counts;
  for (const std::int64_t in_class : class_rows) counts.push_back(in_class * test_count / rows);
  std::vector<std::size_t> classes(class_rows.size());
  std::iota(classes.begin(), classes.end(), std::size_t{0});
  std::stable_sort(classes.begin(), classes.end(), [&](std::size_t a, std::size_t b) {
    return class_rows[a] * test_count % rows > class_rows[b] * test_count % rows;
  });
  std::int64_t missing = test_count - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (std::size_t i = 0; missing > 0; ++i, --missing) ++counts[classes[i]];
  return counts;
}

std::vector<std::int64_t> shuffled(const std::vector<std::int64_t>& rows, std::uint64_t key) {
  std::vector<std::int64_t> result(rows.size());
  if (rows.empty()) return result;
  const Permutation order(static_cast<std::int64_t>(rows.size()), key);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    result[i] = rows[static_cast<std::size_t>(order(static_cast<std::int64_t>(i)))];
  }
  return result;
}

Split split_rows(const CsvImages& images, std::int64_t classes, const PackCsv& settings) {
  std::vector<std::vector<std::int64_t>> by_class(static_cast<std::size_t>(classes));
  for (std::int64_t row = 0; row < images.rows; ++row) {
    by_class[static_cast<std::size_t>(images.labels[static_cast<std::size_t>(row)])].push_back(row);
  }
  std::vector<std::int64_t> class_rows;
  for (const auto& rows : by_class) class_rows.push_back(static_cast<std::int64_t>(rows.size()));
  const std::vector<std::int64_t> counts = test_counts(class_rows, settings.test_count);
  Split split;
  for (std::size_t label = 0; label < by_class.size(); ++label) {
    const auto rows = shuffled(by_class[label], mix_all(settings.seed, Purpose::split, label));
    split.test.insert(split.test.end(), rows.begin(), rows.begin() + counts[label]);
    split.train.insert(split.train.end(), rows.begin() + counts[label], rows.end());
  }
  split.train = shuffled(split.train, mix_all(settings.seed, Purpose::order, 0));
  split.test = shuffled(split.test, mix_all(settings.seed, Purpose::order, 1));
  return split;
}

// Mean and deviation of each channel over `rows`, of values / 255. Whole-number sums: no order of adding
// matters.
void measure(const CsvImages& images, const std::vector<std::int64_t>& rows, const Shape& shape,
             PackResult& result) {
  const auto channels = static_cast<std::size_t>(shape.size() > 1 ? shape[0] : 1);
  const std::size_t width = images.values.size() / static_cast<std::size_t>(images.rows);
  const std::size_t plane = width / channels;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    for (const std::int64_t row : rows) {
      const std::uint8_t* values =
          images.values.data() + static_cast<std::size_t>(row) * width + channel * plane;
      for (std::size_t i = 0; i < plane; ++i) {
        sum += values[i];
        squares += std::uint64_t{values[i]} * values[i];
      }
    }
    const double count = static_cast<double>(plane) * static_cast<double>(rows.size());
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    result.mean.push_back(mean / 255);
    // A channel of one value has no scale: left as it is rather than divided by zero.
    result.std_deviation.push_back(variance > 0 ? std::sqrt(variance) / 255 : 1);
  }
}

void write_rows(const fs::path& path, const CsvImages& images, const std::vector<std::int64_t>& rows,
                const Share& part, const PackCsv& settings, const PackResult& result) {
  const std::size_t width = images.values.size() / static_cast<std::size_t>(images.rows);
  std::vector<std::uint8_t> values(width * static_cast<std::size_t>(part.count()));
  std::vector<std::int64_t> labels;
  for (std::int64_t i = part.first; i < part.last; ++i) {
    const auto row = static_cast<std::size_t>(rows[static_cast<std::size_t>(i)]);
    std::memcpy(values.data() + width * static_cast<std::size_t>(i - part.first),
                images.values.data() + width * row, width);
    labels.push_back(images.labels[row]);
  }
  write_shard(path.string(), {settings.shape, Scalar::uint8, part.count(), values.data(), labels.data(),
                              result.classes, result.mean, result.std_deviation});
  sync_path(path.string());
}

// Writes `rows` as `shards` shards into a new folder beside `folder`, and returns it.
fs::path write_folder(const fs::path& folder, const char* prefix, const std::vector<std::int64_t>& rows,
                      std::int64_t shards, const CsvImages& images, const PackCsv& settings,
                      PackResult& result) {
  const fs::path partial = begin_folder(folder);
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    const std::string name = shard_name(prefix, shard, shards);
    const Share part = share(static_cast<std::int64_t>(rows.size()), shard, shards);
    write_rows(partial / name, images, rows, part, settings, result);
    result.files.push_back((folder / name).string());
  }
  return partial;
}

// The number of classes, every label being below it and every class having a row to learn from.
std::int64_t count_classes(const CsvImages& images, const PackCsv& settings) {
  const auto largest = std::max_element(images.labels.begin(), images.labels.end());
  if (settings.classes == 0) return *largest + 1;
  if (*largest < settings.classes) return settings.classes;
  throw DataError(
      settings.input, "", -1,
      text("line ", images.lines[static_cast<std::size_t>(largest - images.labels.begin())], " has label ",
           *largest, ", outside of the ", settings.classes, " classes [0, ", settings.classes, ")"));
}

PackResult pack(const PackCsv& settings) {
  const fs::path train_folder = folder_path(settings.output);
  const fs::path test_folder = folder_path(settings.test_output);
  check_folder(train_folder, settings.overwrite);
  if (settings.test_count > 0) check_folder(test_folder, settings.overwrite);

  const std::int64_t width =
      std::accumulate(settings.shape.begin(), settings.shape.end(), std::int64_t{1}, std::multiplies<>());
  const CsvImages images =
      parse_csv(read_plain_or_gzip(settings.input), settings.input, width, settings.label_column);
  if (settings.test_count >= images.rows) {
    throw DataError(settings.input, "", -1,
                    text("has ", images.rows, " rows; ", settings.test_count,
                         " for testing would leave none to train on"));
  }
  PackResult result;
  result.skipped_header = images.skipped_header;
  result.classes = count_classes(images, settings);
  const Split split = split_rows(images, result.classes, settings);
  result.train_rows = static_cast<std::int64_t>(split.train.size());
  result.test_rows = static_cast<std::int64_t>(split.test.size());
  if (settings.shards > result.train_rows) {
    throw UsageError(text(result.train_rows, " rows cannot be packed into ", settings.shards, " shards"));
  }
  measure(images, split.train, settings.shape, result);

  const fs::path train =
      write_folder(train_folder, "train", split.train, settings.shards, images, settings, result);
  fs::path test;
  if (settings.test_count > 0)
    test = write_folder(test_folder, "test", split.test, 1, images, settings, result);
  swap_in(train, train_folder);
  if (settings.test_count > 0) swap_in(test, test_folder);
  return result;
}

}  // namespace

PackResult pack_csv(const PackCsv& settings) {
  check_settings(settings);
  try {
    return pack(settings);
  } catch (const fs::filesystem_error& failure) {
    throw Error(ExitCode::cannot_create, failure.what());
  }
}

}  // namespace lockstep::data
