#include "data/pack.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <libdeflate.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "data/order.hpp"
#include "data/reader.hpp"
#include "support/catch.hpp"
#include "support/shards.hpp"

using namespace lockstep;
using namespace lockstep::data;
using lockstep::test::contains;
using lockstep::test::TemporaryFolder;

namespace {

// `per_class` rows of each of ten classes, sorted by class: two channels of two pixels; the first pixel tells
// the row.
std::string csv_text(std::int64_t per_class) {
  std::string lines;
  for (std::int64_t row = 0; row < 10 * per_class; ++row) {
    lines += text(row % 250, ',', test::pixel(row, 1) + 0, ",10,", row / 250, ',', row / per_class, '\n');
  }
  return lines;
}

std::string write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string gzipped(const std::string& content) {
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(6);
  std::string stored(libdeflate_gzip_compress_bound(compressor, content.size()), '\0');
  stored.resize(
      libdeflate_gzip_compress(compressor, content.data(), content.size(), stored.data(), stored.size()));
  libdeflate_free_compressor(compressor);
  return stored;
}

PackCsv settings_for(const TemporaryFolder& folder, const std::string& content) {
  PackCsv settings;
  settings.input = write(folder / "in.csv", content);
  settings.output = folder / "train";
  settings.test_output = folder / "test";
  settings.shape = {2, 1, 2};
  settings.shards = 4;
  settings.test_count = 50;
  return settings;
}

// Which CSV rows a folder holds, in order, from their pixels; counts their classes.
std::vector<std::int64_t> packed_rows(const std::string& path, std::map<std::int64_t, int>& classes) {
  Rows reader(DataSet::open(path), Access::blocks);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < reader.data().rows(); ++i) {
    std::uint8_t pixels[4];
    std::int64_t label = -1;
    reader.read(std::span(&i, 1), pixels, &label);
    rows.push_back(pixels[0] + 250 * pixels[3]);
    CHECK(pixels[1] == test::pixel(rows.back(), 1));
    ++classes[label];
  }
  return rows;
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_text_file(entry.path().string());
  }
  return files;
}

void check_refused(const PackCsv& settings, const std::string& words, ExitCode code) {
  try {
    pack_csv(settings);
    FAIL("not refused: " << words);
  } catch (const Error& error) {
    CHECK_THAT(error.what(), contains(words));
    CHECK(error.code() == code);
  }
}

}  // namespace

TEST_CASE("a CSV file becomes shuffled training shards and a test shard with every class in proportion") {
  const TemporaryFolder folder;
  const PackResult result = pack_csv(settings_for(folder, csv_text(40)));
  CHECK(result.train_rows == 350);
  CHECK(result.test_rows == 50);
  CHECK(result.classes == 10);
  CHECK_FALSE(result.skipped_header);
  REQUIRE(result.files.size() == 5);
  CHECK(result.files[0] == folder / "train/train-00000-of-00004.h5");
  CHECK(result.files[4] == folder / "test/test-00000-of-00001.h5");
  std::map<std::int64_t, int> train_classes;
  std::map<std::int64_t, int> test_classes;
  std::vector<std::int64_t> rows = packed_rows(folder / "train", train_classes);
  std::set<std::int64_t> first_classes;
  for (std::size_t i = 0; i < 50; ++i) first_classes.insert(rows[i] / 40);
  CHECK(first_classes.size() == 10);  // no longer sorted by class
  for (std::int64_t label = 0; label < 10; ++label) {
    CHECK(train_classes[label] == 35);
    CHECK(test_classes[label] == 0);
  }
  const std::vector<std::int64_t> test_rows = packed_rows(folder / "test", test_classes);
  for (std::int64_t label = 0; label < 10; ++label) CHECK(test_classes[label] == 5);
  rows.insert(rows.end(), test_rows.begin(), test_rows.end());
  CHECK(std::set<std::int64_t>(rows.begin(), rows.end()).size() == 400);
  CHECK(rows.size() == 400);
  const DataSet data = DataSet::open(folder / "train");
  CHECK(data.input_shape() == Shape{2, 1, 2});
  for (const Shard& shard : data.shards()) CHECK((shard.rows == 87 || shard.rows == 88));
}

TEST_CASE(
    "proportions that are no whole numbers go to the largest remainders, and exactly as many rows are put "
    "aside") {
  const TemporaryFolder folder;
  std::string lines;
  for (int row = 0; row < 10; ++row) lines += text("0,0,0,0,", row < 5 ? 0 : row < 8 ? 1 : 2, '\n');
  PackCsv settings = settings_for(folder, lines);
  settings.test_count = 4;  // of 5, 3, 2: 2, 1.2, 0.8
  settings.shards = 1;
  pack_csv(settings);
  Rows reader(DataSet::open(settings.test_output), Access::blocks);
  std::map<std::int64_t, int> classes;
  for (std::int64_t i = 0; i < 4; ++i) {
    std::uint8_t pixels[4];
    std::int64_t label = -1;
    reader.read(std::span(&i, 1), pixels, &label);
    ++classes[label];
  }
  CHECK(classes == std::map<std::int64_t, int>{{0, 2}, {1, 1}, {2, 1}});
}

TEST_CASE("packing twice gives identical files, another seed another split") {
  const TemporaryFolder folder;
  PackCsv settings = settings_for(folder, csv_text(40));
  pack_csv(settings);
  const auto train = contents(settings.output);
  const auto test = contents(settings.test_output);
  settings.output = folder / "again";
  settings.test_output = folder / "again-test/";
  pack_csv(settings);
  CHECK(contents(settings.output) == train);
  CHECK(contents(settings.test_output) == test);
  settings.output = folder / "other";
  settings.test_output = folder / "other-test";
  settings.seed = 2;
  pack_csv(settings);
  CHECK(contents(settings.output) != train);
  CHECK(contents(settings.test_output) != test);
}

TEST_CASE("mean and deviation are of the training rows, per channel, in units of values / 255") {
  const TemporaryFolder folder;
  PackCsv settings = settings_for(folder, csv_text(40));
  const PackResult result = pack_csv(settings);
  Rows reader(DataSet::open(settings.output), Access::blocks);
  CHECK(reader.data().mean() == result.mean);
  CHECK(reader.data().std_deviation() == result.std_deviation);
  std::vector<double> sum(2);
  std::vector<double> squares(2);
  for (std::int64_t i = 0; i < 350; ++i) {
    std::uint8_t pixels[4];
    std::int64_t label = -1;
    reader.read(std::span(&i, 1), pixels, &label);
    for (std::size_t j = 0; j < 4; ++j) sum[j / 2] += pixels[j] / 255.0;
    for (std::size_t j = 0; j < 4; ++j) squares[j / 2] += pixels[j] / 255.0 * pixels[j] / 255.0;
  }
  for (std::size_t channel = 0; channel < 2; ++channel) {
    const double mean = sum[channel] / 700;
    CHECK(result.mean[channel] == Approx(mean));
    CHECK(result.std_deviation[channel] == Approx(std::sqrt(squares[channel] / 700 - mean * mean)));
  }
  CHECK(DataSet::open(settings.test_output).mean() == result.mean);  // of the training rows there too
}

TEST_CASE("gzip, a header, Windows line ends, blanks, 7.0 and any label column read alike") {
  const TemporaryFolder folder;
  const auto pack = [&](const std::string& content, std::int64_t label_column) {
    const TemporaryFolder out;
    PackCsv settings = settings_for(out, "");
    settings.input = write(folder / "in", content);
    settings.label_column = label_column;
    settings.test_count = 0;
    settings.shards = 1;
    const PackResult result = pack_csv(settings);
    return std::pair(contents(settings.output), result.skipped_header);
  };
  const auto plain = pack("1,2,3,4,0\n5,6,7,8,1\n", -1).first;
  CHECK(pack("1,2,3,4,0\r\n5, 6 ,7.0,8.000,1\r\n\r\n\n", 4).first == plain);
  CHECK(pack("0,1,2,3,4\n1,5,6,7,8", 0).first == plain);
  CHECK(pack("1,2,0,3,4\n5,6,1,7,8", -3).first == plain);
  CHECK(pack("a,b,c,d,label\n1,2,3,4,0\n5,6,7,8,1\n", -1) == std::pair(plain, true));
  CHECK(pack("0,1,2,3,label\n1,2,3,4,0\n5,6,7,8,1\n", -1) == std::pair(plain, true));
  CHECK(pack(gzipped("1,2,3,4,0\n5,6,7,8,1\n"), -1).first == plain);
  CHECK(pack(gzipped("1,2,3,4,0\n") + gzipped("5,6,7,8,1\n"), -1).first == plain);
}

TEST_CASE("text that inflates far beyond its size is read in whole") {
  const TemporaryFolder folder;
  std::string lines;
  for (int row = 0; row < 200000; ++row) lines += "0,0,0,0,0\n";
  PackCsv settings = settings_for(folder, "");
  settings.input = write(folder / "in.gz", gzipped(lines));
  settings.test_count = 0;
  CHECK(pack_csv(settings).train_rows == 200000);
  CHECK(DataSet::open(settings.output).std_deviation() == std::vector<double>{1, 1});  // no scale: left alone
}

TEST_CASE("a bad line is refused with its number and both values, and nothing is written") {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& content, const std::string& words) {
    PackCsv settings = settings_for(folder, content);
    settings.test_count = 0;
    settings.shards = 1;
    check_refused(settings, words, ExitCode::bad_data);
    CHECK_FALSE(std::filesystem::exists(settings.output));
  };
  check("1,2,3,4,0\n1,2,3,0\n", "in.csv: line 2 has 4 fields, not 5 (4 values and the label)");
  check("1,2,3,4,0\n\n1,2,3,4,0\n", "line 2 has 1 fields, not 5");
  check("1,2,3,4,5,0\n", "line 1 has 6 fields, not 5");
  check("1,2,3,4,0\n1,x2,3,4,0\n", "line 2 holds \"x2\" in column 1, which is no number");
  check("1,2,,4,0\n", "line 1 holds \"\" in column 2");
  check("1,2,3,256,0\n", "line 1 holds 256 in column 3; whole numbers from 0 to 255 are read");
  check("1,-2,3,4,0\n", "line 1 holds -2 in column 1");
  check("1,2.5,3,4,0\n", "line 1 holds 2.5 in column 1");
  check("1,nan,3,4,0\n", "line 1 holds nan in column 1");
  check("1,2,3,4,0\n1,2,3,4,1.5\n", "line 2 holds 1.5 in column 4");
  check("1,2,3,4,-1\n", "line 1 holds -1 in column 4");
  check("", "holds no rows");
  check("a,b,c,d,e\n", "holds no rows");
  check(gzipped("1,2,3,4,0\n").substr(0, 20), "its gzip data is damaged or cut off after byte 0 of 20");
  PackCsv settings = settings_for(folder, "1,2,3,4,0\n1,2,3,4,7\n");
  settings.classes = 5;
  settings.test_count = 0;
  check_refused(settings, "line 2 has label 7, outside of the 5 classes [0, 5)", ExitCode::bad_data);
  settings.classes = 0;
  settings.test_count = 2;
  check_refused(settings, "has 2 rows; 2 for testing would leave none", ExitCode::bad_data);
  settings.input = folder / "none.csv";
  check_refused(settings, "none.csv", ExitCode::input_missing);
}

TEST_CASE("packing settings that make no sense are usage errors") {
  const TemporaryFolder folder;
  const PackCsv good = settings_for(folder, "1,2,3,4,0\n1,2,3,4,1\n1,2,3,4,1\n");
  PackCsv settings = good;
  settings.shape = {};
  check_refused(settings, "the shape of one row", ExitCode::usage);
  settings = good;
  settings.shape = {2, 0};
  check_refused(settings, "shape [2, 0]", ExitCode::usage);
  settings = good;
  settings.shards = 0;
  check_refused(settings, "0 shards", ExitCode::usage);
  settings = good;
  settings.test_output = folder / "train/";
  check_refused(settings, "cannot share the folder", ExitCode::usage);
  settings = good;
  settings.test_output = "";
  check_refused(settings, "no folder for them", ExitCode::usage);
  settings = good;
  settings.label_column = 5;
  check_refused(settings, "label column 5", ExitCode::usage);
  settings = good;
  settings.test_count = 1;
  check_refused(settings, "2 rows cannot be packed into 4 shards", ExitCode::usage);
}

TEST_CASE("shards that are there are replaced only when that is asked for, other files never") {
  const TemporaryFolder folder;
  PackCsv settings = settings_for(folder, csv_text(40));
  pack_csv(settings);
  const auto before = contents(settings.output);
  settings.shards = 2;
  check_refused(settings, "holds shards already (train-0000", ExitCode::cannot_create);
  CHECK(contents(settings.output) == before);
  settings.overwrite = true;
  pack_csv(settings);
  CHECK(contents(settings.output).size() == 2);
  CHECK(std::filesystem::exists(folder / "train/train-00001-of-00002.h5"));
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.insert(entry.path().filename().string());
  CHECK(names == std::set<std::string>{"in.csv", "test", "train"});  // nothing temporary is left
  write(folder / "train/notes.txt", "mine");
  check_refused(settings, "holds something that is no shard (notes.txt)", ExitCode::cannot_create);
  CHECK(contents(settings.output).size() == 3);
}

TEST_CASE("what a killed packing left behind is no obstacle") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "train.partial");
  write(folder / "train.partial/train-00000-of-00004.h5", "half a shard");
  const PackResult result = pack_csv(settings_for(folder, csv_text(40)));
  CHECK(DataSet::open(folder / "train").rows() == result.train_rows);
}
