#include "data/shards.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "data/pack.hpp"
#include "support/catch.hpp"
#include "support/raw_hdf5.hpp"
#include "support/shards.hpp"

using namespace lockstep;
using namespace lockstep::data;
using lockstep::test::contains;
using lockstep::test::make_shards;
using lockstep::test::RawDataset;
using lockstep::test::TemporaryFolder;

namespace {

ExitCode code_of(const std::string& path) {
  try {
    DataSet::open(path);
  } catch (const DataError& error) {
    return error.code();
  }
  return ExitCode::done;
}

// A shard in any storage, with `rows` zeros of one pixel each as uint8 unless told otherwise.
struct OddShard {
  std::int64_t rows = 8;
  std::int64_t classes = 10;
  RawDataset inputs = {"inputs", Scalar::uint8, {8, 1}};
  RawDataset targets = {"targets", Scalar::uint8, {8}};
  const void* labels = nullptr;
};

std::string write_odd(const std::string& path, const OddShard& shard) {
  const std::vector<std::byte> zeros(1 << 12);
  test::add_dataset(path, shard.inputs, zeros.data());
  test::add_dataset(path, shard.targets, shard.labels != nullptr ? shard.labels : zeros.data());
  test::add_string_attribute(path, "format", "lockstep-1");
  test::add_integer_attribute(path, "classes", shard.classes);
  return path;
}

void write_one(const std::string& path, std::int64_t rows, const Shape& shape, Scalar scalar,
               std::int64_t classes, const std::vector<double>& mean = {}) {
  const std::vector<std::byte> zeros(1 << 12);
  const std::vector<std::int64_t> labels(static_cast<std::size_t>(rows));
  write_shard(path, {shape, scalar, rows, zeros.data(), labels.data(), classes, mean, mean});
}

}  // namespace

TEST_CASE("a folder of shards is one data set in the order of names, an empty shard included") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {5, 0, 7});
  std::ofstream(folder / "README.txt") << "no shard";
  const DataSet data = DataSet::open(folder.path());
  CHECK(data.rows() == 12);
  CHECK(data.input_shape() == Shape{1, 4, 4});
  CHECK(data.input_scalar() == Scalar::uint8);
  CHECK(data.input_row_bytes() == 16);
  CHECK(data.classes() == 10);
  CHECK(data.mean().empty());
  CHECK(data.decoded_bytes() == 12 * 17);
  REQUIRE(data.shards().size() == 3);
  CHECK(data.shards()[2].first_row == 5);
  CHECK(data.shards()[0].inputs.offset > 0);
  CHECK(data.row_blocks().edges == std::vector<std::int64_t>{0, 5, 12});
}

TEST_CASE("one file is a data set, and row blocks follow its chunks") {
  const TemporaryFolder folder;
  OddShard shard;
  shard.inputs.chunk = {3, 1};
  const DataSet data = DataSet::open(write_odd(folder / "a.anything", shard));
  CHECK(data.row_blocks().edges == std::vector<std::int64_t>{0, 3, 6, 8});
  CHECK(data.shards()[0].inputs.offset == -1);
}

TEST_CASE("contiguous data has row blocks of about one mebibyte") {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> zeros(5 << 19);
  const std::vector<std::int64_t> labels(5);
  write_shard(folder / "a.h5", {{1 << 19}, Scalar::uint8, 5, zeros.data(), labels.data(), 1, {}, {}});
  CHECK(DataSet::open(folder.path()).row_blocks().edges == std::vector<std::int64_t>{0, 2, 4, 5});
}

TEST_CASE(
    "a description makes an equal data set without the files, and the fingerprint does not depend on "
    "folders") {
  const TemporaryFolder folder;
  make_shards(folder / "one", {5, 7});
  write_one(folder / "two.h5", 3, {2, 2, 2}, Scalar::float32, 4, {0.1, 1.0 / 3});
  const DataSet data = DataSet::open(folder / "two.h5");
  const std::string description = data.describe();
  CHECK(description.find('\n') == std::string::npos);
  const DataSet one = DataSet::open(folder / "one");
  std::filesystem::rename(folder / "one", folder / "moved");
  CHECK(DataSet::open(folder / "moved").fingerprint() == one.fingerprint());
  CHECK(DataSet::from_description(one.describe()).row_blocks().edges == one.row_blocks().edges);
  std::filesystem::remove(folder / "two.h5");
  const DataSet copy = DataSet::from_description(description);
  CHECK(copy.describe() == description);
  CHECK(copy.fingerprint() == data.fingerprint());
  CHECK(copy.rows() == 3);
  CHECK(copy.input_scalar() == Scalar::float32);
  CHECK(copy.mean() == data.mean());  // bit for bit
  CHECK(copy.std_deviation() == data.std_deviation());
  CHECK(copy.shards()[0].inputs.offset == data.shards()[0].inputs.offset);
  CHECK_THROWS_AS(DataSet::from_description("{}"), DataError);
}

TEST_CASE("the fingerprint tells row counts, types and names apart") {
  const TemporaryFolder folder;
  std::set<std::uint64_t> prints;
  const auto add = [&](const std::string& name, std::int64_t rows, const Shape& shape, Scalar scalar,
                       std::int64_t classes) {
    write_one(folder / name, rows, shape, scalar, classes);
    prints.insert(DataSet::open(folder / name).fingerprint());
  };
  add("a.h5", 4, {2, 2}, Scalar::uint8, 3);
  add("b.h5", 4, {2, 2}, Scalar::uint8, 3);
  std::filesystem::remove(folder / "a.h5");
  add("a.h5", 5, {2, 2}, Scalar::uint8, 3);
  std::filesystem::remove(folder / "a.h5");
  add("a.h5", 4, {4}, Scalar::uint8, 3);
  std::filesystem::remove(folder / "a.h5");
  add("a.h5", 4, {2, 2}, Scalar::uint8, 4);
  std::filesystem::remove(folder / "a.h5");
  add("a.h5", 2, {2, 2}, Scalar::uint16, 3);
  CHECK(prints.size() == 6);
}

TEST_CASE("the fingerprint tells row blocks apart, since the order of samples depends on them") {
  const TemporaryFolder folder;
  std::set<std::uint64_t> prints;
  for (const std::int64_t chunk_rows : {2, 4}) {
    OddShard shard;
    shard.inputs.chunk = {chunk_rows, 1};
    write_odd(folder / "a.h5", shard);
    std::filesystem::resize_file(folder / "a.h5", 20000);  // so that sizes do not give it away
    prints.insert(DataSet::open(folder / "a.h5").fingerprint());
    std::filesystem::remove(folder / "a.h5");
  }
  CHECK(prints.size() == 2);
}

TEST_CASE("a missing or empty folder is missing input, and the message says what to do") {
  const TemporaryFolder folder;
  CHECK(code_of(folder / "none") == ExitCode::input_missing);
  CHECK(code_of(folder.path()) == ExitCode::input_missing);
  CHECK_THROWS_WITH(DataSet::open(folder.path()),
                    contains(folder.path()) && contains("holds no *.h5") && contains("pack"));
}

TEST_CASE("a shard that is no HDF5 file, or is cut off, is named before the first step") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {5, 700, 7});
  const std::string second = folder / "shard-00001.h5";
  const auto size = std::filesystem::file_size(second);
  std::filesystem::resize_file(second, size - 40);
  CHECK(code_of(folder.path()) == ExitCode::bad_data);
  CHECK_THROWS_WITH(DataSet::open(folder.path()), contains("shard-00001.h5: truncated file") &&
                                                      contains(std::to_string(size - 40)) &&
                                                      contains(std::to_string(size)));
  std::ofstream(second, std::ios::trunc) << "version https://git-lfs.github.com/spec/v1";
  CHECK_THROWS_WITH(DataSet::open(folder.path()), contains("shard-00001.h5: is not an HDF5 file"));
  CHECK(code_of(folder.path()) == ExitCode::bad_data);
}

TEST_CASE("a shard of a killed writer names what is missing or h5clear") {
  const TemporaryFolder folder;
  test::leave_unfinished(folder / "old.h5", "inputs", "targets", 4, false);
  test::add_string_attribute(folder / "old.h5", "format", "lockstep-1");
  CHECK_THROWS_WITH(DataSet::open(folder / "old.h5"), contains("old.h5, dataset targets: is missing"));
  test::leave_unfinished(folder / "new.h5", "inputs", "targets", 4, true);
  CHECK_THROWS_WITH(DataSet::open(folder / "new.h5"),
                    contains("new.h5: file is already open for write") && contains("h5clear"));
}

TEST_CASE("files that are no packed shards say so") {
  const TemporaryFolder folder;
  test::add_dataset(folder / "a.h5", {"data", Scalar::uint8, {4}}, "abcd");
  CHECK_THROWS_WITH(DataSet::open(folder / "a.h5"),
                    contains("has no attribute format") && contains("lockstep pack"));
  test::add_string_attribute(folder / "a.h5", "format", "lockstep-9");
  CHECK_THROWS_WITH(DataSet::open(folder / "a.h5"), contains("\"lockstep-9\"") && contains("\"lockstep-1\""));
}

TEST_CASE("shards that disagree are refused with both values and both files") {
  const TemporaryFolder folder;
  write_one(folder / "a.h5", 4, {2, 2}, Scalar::uint8, 3, {0.5});
  const auto check = [&](const std::string& words, const std::function<void(const std::string&)>& write) {
    const std::string path = folder / "b.h5";
    write(path);
    CHECK_THROWS_WITH(DataSet::open(folder.path()), contains(words) && contains("a.h5") && contains("b.h5"));
    CHECK(code_of(folder.path()) == ExitCode::bad_data);
    std::filesystem::remove(path);
  };
  check("row shape is [2, 3], but [2, 2]", [](const auto& path) {
    write_one(path, 4, {2, 3}, Scalar::uint8, 3, {0.5});
  });
  check("type is float32, but uint8", [](const auto& path) {
    write_one(path, 4, {2, 2}, Scalar::float32, 3, {0.5});
  });
  check("classes is 4, but 3", [](const auto& path) { write_one(path, 4, {2, 2}, Scalar::uint8, 4, {0.5}); });
  check("mean is missing, but 0.5", [](const auto& path) { write_one(path, 4, {2, 2}, Scalar::uint8, 3); });
  check("dataset targets: its type is int32, but uint8", [](const auto& path) {
    write_odd(path, {4, 3, {"inputs", Scalar::uint8, {4, 2, 2}}, {"targets", Scalar::int32, {4}}, nullptr});
  });
}

TEST_CASE("datasets that do not fit together are refused") {
  const TemporaryFolder folder;
  const auto check = [&](const OddShard& shard, const std::string& words) {
    const std::string path = folder / "a.h5";
    write_odd(path, shard);
    CHECK_THROWS_WITH(DataSet::open(path), contains(words));
    std::filesystem::remove(path);
  };
  OddShard shard;
  shard.targets.shape = {7};
  check(shard, "inputs has 8 rows, targets has 7");
  shard.targets.shape = {8, 1};
  check(shard, "dataset targets: has shape [8, 1]");
  shard.targets = {"targets", Scalar::float32, {8}};
  check(shard, "dataset targets: holds float32; labels are integers");
  shard.targets = {"labels", Scalar::uint8, {8}};
  check(shard, "dataset targets: is missing");
  shard.targets = {"targets", Scalar::uint8, {8}};
  shard.inputs.name = "images";
  check(shard, "dataset inputs: is missing");
  shard.inputs.name = "inputs";
  shard.classes = 0;
  check(shard, "attribute classes is 0");
}

TEST_CASE("a label outside of the classes is named with its row, in every type and byte order") {
  const TemporaryFolder folder;
  OddShard shard;
  const std::uint8_t bytes[8] = {0, 1, 2, 3, 4, 10, 0, 11};
  shard.labels = bytes;
  CHECK_THROWS_WITH(
      DataSet::open(write_odd(folder / "a.h5", shard)),
      contains("a.h5, dataset targets, row 5: label 10 is outside of the file's 10 classes [0, 10)"));
  const std::int32_t negative[8] = {0, 0, -1};
  shard.labels = negative;
  shard.targets = {"targets", Scalar::int32, {8}};
  CHECK_THROWS_WITH(DataSet::open(write_odd(folder / "b.h5", shard)), contains("row 2: label -1"));
  const std::uint64_t huge[8] = {~std::uint64_t{0}};
  shard.labels = huge;
  shard.targets = {"targets", Scalar::uint64, {8}};
  CHECK_THROWS_WITH(DataSet::open(write_odd(folder / "c.h5", shard)), contains("row 0: label -1"));
  const std::uint16_t swapped[8] = {0x0100, 0x0200, 0x0900, 0x0a00};  // 1, 2, 9, 10 in big-endian
  shard.labels = swapped;
  shard.targets = {"targets", Scalar::uint16, {8}, true, {3}, 1};
  CHECK_THROWS_WITH(DataSet::open(write_odd(folder / "d.h5", shard)), contains("row 3: label 10"));
}

TEST_CASE("labels far into a long shard are looked at too") {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> labels(200000, 1);
  labels[199999] = 3;
  const std::vector<std::uint8_t> pixels(200000);
  const std::string path = folder / "a.h5";
  test::add_dataset(path, {"inputs", Scalar::uint8, {200000, 1}}, pixels.data());
  test::add_dataset(path, {"targets", Scalar::uint8, {200000}}, labels.data());
  test::add_string_attribute(path, "format", "lockstep-1");
  test::add_integer_attribute(path, "classes", 3);
  CHECK_THROWS_WITH(DataSet::open(path), contains("row 199999: label 3"));
}

TEST_CASE("a missing filter is refused at once, by number and name") {
  const TemporaryFolder folder;
  {
    const test::CountingFilter filter;
    OddShard shard;
    shard.inputs.chunk = {4, 1};
    shard.inputs.counted = true;
    write_odd(folder / "a.h5", shard);
  }
  CHECK_THROWS_WITH(DataSet::open(folder / "a.h5"),
                    contains("dataset inputs: needs HDF5 filter 300 (counting)"));
}

TEST_CASE("data that was never written, and data of other files, is refused rather than read as zeros") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  test::add_dataset(path, {"inputs", Scalar::uint8, {8, 1}, false, {4, 1}}, nullptr);
  test::add_dataset(path, {"targets", Scalar::uint8, {8}}, "\0\0\0\0\0\0\0\0");
  test::add_string_attribute(path, "format", "lockstep-1");
  test::add_integer_attribute(path, "classes", 2);
  CHECK_THROWS_WITH(DataSet::open(path), contains("dataset inputs: was never written in whole"));
  const std::string other = folder / "b.h5";
  test::add_virtual(other, "inputs", 8, folder / "missing.h5", "inputs");
  test::add_dataset(other, {"targets", Scalar::uint8, {8}}, "\0\0\0\0\0\0\0\0");
  test::add_string_attribute(other, "format", "lockstep-1");
  CHECK_THROWS_WITH(DataSet::open(other), contains("dataset inputs: is a virtual dataset"));
}

TEST_CASE("a data set without a single row is refused") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {0, 0});
  CHECK(code_of(folder.path()) == ExitCode::bad_data);
  CHECK_THROWS_WITH(DataSet::open(folder.path()), contains("holds no rows in any shard"));
}

TEST_CASE("normalisation must be whole: both attributes, one number or one for each channel, above zero") {
  const TemporaryFolder folder;
  write_one(folder / "a.h5", 2, {3, 2, 2}, Scalar::uint8, 2, {0.5, 0.5});
  CHECK_THROWS_WITH(DataSet::open(folder / "a.h5"),
                    contains("hold 2 and 2 numbers") && contains("3 channels"));
  write_one(folder / "b.h5", 2, {3, 2, 2}, Scalar::uint8, 2, {0.5, 0, 0.5});
  CHECK_THROWS_WITH(DataSet::open(folder / "b.h5"), contains("attribute std holds 0"));
}
