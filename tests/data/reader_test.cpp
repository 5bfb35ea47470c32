#include "data/reader.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.hpp"
#include "base/text.hpp"
#include "data/order.hpp"
#include "data/pack.hpp"
#include "support/catch.hpp"
#include "support/raw_hdf5.hpp"
#include "support/shards.hpp"

using namespace lockstep;
using namespace lockstep::data;
using lockstep::test::contains;
using lockstep::test::make_shards;
using lockstep::test::TemporaryFolder;

namespace {

using Numbers = std::vector<std::int64_t>;

// Reads `rows` of make_shards' data and compares every pixel and label.
bool reads_right(Rows& reader, const Numbers& rows, std::int64_t classes = 10) {
  const auto width = static_cast<std::size_t>(reader.data().input_row_bytes());
  std::vector<std::uint8_t> inputs(rows.size() * width);
  Numbers targets(rows.size());
  reader.read(rows, inputs.data(), targets.data());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (targets[i] != test::label(rows[i], classes)) return false;
    for (std::size_t j = 0; j < width; ++j) {
      if (inputs[i * width + j] != test::pixel(rows[i], static_cast<std::int64_t>(j))) return false;
    }
  }
  return true;
}

Numbers all_rows(std::int64_t count) {
  Numbers rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

Numbers shuffled_rows(std::int64_t count) {
  Numbers rows;
  const Permutation order(count, 11);
  for (std::int64_t i = 0; i < count; ++i) rows.push_back(order(i));
  return rows;
}

// make_shards' data, 64 rows of 16 pixels, in chunks that split rows, counted and compressed.
std::string write_chunked(const std::string& path, const Shape& chunk, const Shape& target_chunk) {
  std::vector<std::uint8_t> inputs;
  std::vector<std::uint8_t> targets;
  for (std::int64_t row = 0; row < 64; ++row) {
    for (std::int64_t i = 0; i < 16; ++i) inputs.push_back(test::pixel(row, i));
    targets.push_back(static_cast<std::uint8_t>(test::label(row, 10)));
  }
  test::add_dataset(path, {"inputs", Scalar::uint8, {64, 16}, false, chunk, 4, true}, inputs.data());
  test::add_dataset(path, {"targets", Scalar::uint8, {64}, false, target_chunk, 4, true}, targets.data());
  test::add_string_attribute(path, "format", "lockstep-1");
  test::add_integer_attribute(path, "classes", 10);
  return path;
}

}  // namespace

TEST_CASE("rows come in the order of asking, from blocks and singly, over shards of any size") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {5, 1, 0, 30, 2});
  const DataSet data = DataSet::open(folder.path());
  for (const Access access : {Access::blocks, Access::rows}) {
    for (const std::int64_t cache : {std::int64_t{0}, std::int64_t{100}, kDefaultCacheBytes}) {
      Rows reader(data, access, cache);
      CHECK(reads_right(reader, all_rows(38)));
      CHECK(reads_right(reader, shuffled_rows(38)));
      CHECK(reads_right(reader, {}));
      CHECK(reads_right(reader, {37, 0, 37, 6}));
      CHECK(reader.cached_bytes() <= cache);
    }
  }
  Rows reader(data, Access::blocks);
  CHECK_THROWS_WITH(reads_right(reader, {38}), contains("row 38 is outside of the data set's 38 rows"));
  CHECK_THROWS_AS(reads_right(reader, {-1}), UsageError);
}

TEST_CASE("data that fits into the cache is read once however it is asked for") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {50, 50});
  Rows reader(DataSet::open(folder.path()), Access::rows);
  for (int epoch = 0; epoch < 3; ++epoch) CHECK(reads_right(reader, shuffled_rows(100)));
  CHECK(reader.counts().bytes == 100 * 17);
  CHECK(reader.counts().single_rows == 0);
  CHECK(reader.counts().opens == 2);
}

TEST_CASE("each chunk is inflated once an epoch, although chunks split rows and batches take a few") {
  const TemporaryFolder folder;
  const test::CountingFilter filter;
  const std::string path = write_chunked(folder / "a.h5", {8, 3}, {10});
  constexpr std::int64_t kInputChunks = 8 * 6;
  constexpr std::int64_t kTargetChunks = 7;
  const DataSet data = DataSet::open(path);
  CHECK(filter.decoded() == kTargetChunks);  // the labels were looked at
  Order order(data.row_blocks(), 1, 4, config::ShuffleMode::blocks);
  REQUIRE(order.lanes() == 2);
  // Room for two lanes' windows of four blocks, and all targets: no more.
  Rows reader(data, Access::blocks, 8 * 8 * 16 + 64);
  Numbers seen;
  for (std::int64_t step = 0; step < order.steps_per_epoch(); ++step) {
    Numbers rows;
    for (std::int64_t position = 0; position < 4; ++position) rows.push_back(order.row(step, position));
    REQUIRE(reads_right(reader, rows));
    seen.insert(seen.end(), rows.begin(), rows.end());
  }
  CHECK(filter.decoded() == kTargetChunks + kInputChunks + kTargetChunks);
  CHECK(reader.counts().chunks == kInputChunks + kTargetChunks);
  std::sort(seen.begin(), seen.end());
  CHECK(seen == all_rows(64));
}

TEST_CASE("a chunk larger than HDF5's own cache of a mebibyte is inflated once all the same") {
  const TemporaryFolder folder;
  const test::CountingFilter filter;
  const std::string path = folder / "a.h5";
  const std::vector<std::uint8_t> inputs(3 << 20, 7);
  const std::vector<std::uint8_t> targets(3);
  test::add_dataset(path, {"inputs", Scalar::uint8, {3, 1 << 20}, false, {3, 1 << 20}, 1, true},
                    inputs.data());
  test::add_dataset(path, {"targets", Scalar::uint8, {3}}, targets.data());
  test::add_string_attribute(path, "format", "lockstep-1");
  test::add_integer_attribute(path, "classes", 1);
  Rows reader(DataSet::open(path), Access::rows);
  std::vector<std::uint8_t> row(1 << 20);
  std::int64_t target = -1;
  for (const std::int64_t wanted : {2, 0, 1}) reader.read(std::span(&wanted, 1), row.data(), &target);
  CHECK(filter.decoded() == 1);
  CHECK(row[12345] == 7);
}

TEST_CASE("chunks that cannot be kept are refused before the first row, with what to do") {
  const TemporaryFolder folder;
  const test::CountingFilter filter;
  const DataSet data = DataSet::open(write_chunked(folder / "a.h5", {64, 3}, {64}));
  CHECK_THROWS_WITH(Rows(data, Access::blocks, 1000),
                    contains("dataset inputs: its chunks hold 64 rows, 1.00 KiB") && contains("1000 B") &&
                        contains("h5repack"));
}

TEST_CASE(
    "raw bits of half precision pass through in either byte order: subnormals, infinities, NaNs, signed "
    "zero") {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> bits(1 << 16);
  std::iota(bits.begin(), bits.end(), std::uint16_t{0});
  std::vector<std::uint16_t> swapped(bits);
  for (std::uint16_t& value : swapped) value = static_cast<std::uint16_t>(value << 8 | value >> 8);
  const std::vector<std::uint8_t> targets(16);
  for (const Scalar scalar : {Scalar::float16, Scalar::bfloat16}) {
    for (const bool big_endian : {false, true}) {
      for (const Shape& chunk : {Shape{}, Shape{5, 1000}}) {
        const std::string path = folder / text(hdf5::name(scalar), big_endian, chunk.size(), ".h5");
        test::add_dataset(path, {"inputs", scalar, {16, 4096}, big_endian, chunk, chunk.empty() ? 0 : 1},
                          (big_endian ? swapped : bits).data());
        test::add_dataset(path, {"targets", Scalar::uint8, {16}}, targets.data());
        test::add_string_attribute(path, "format", "lockstep-1");
        test::add_integer_attribute(path, "classes", 1);
        Rows reader(DataSet::open(path), Access::blocks);
        std::vector<std::uint16_t> read(1 << 16);
        Numbers labels(16);
        reader.read(all_rows(16), read.data(), labels.data());
        CHECK(read == bits);
      }
    }
  }
}

TEST_CASE("labels are widened from every integer type and byte order") {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> inputs(3);
  const auto read = [&](Scalar scalar, bool big_endian, const void* labels) {
    const std::string path = folder / text(hdf5::name(scalar), big_endian, ".h5");
    test::add_dataset(path, {"inputs", Scalar::uint8, {3, 1}}, inputs.data());
    test::add_dataset(path, {"targets", scalar, {3}, big_endian}, labels);
    test::add_string_attribute(path, "format", "lockstep-1");
    test::add_integer_attribute(path, "classes", 1000000);
    Rows reader(DataSet::open(path), Access::blocks);
    Numbers targets(3);
    std::uint8_t pixels[3];
    reader.read(all_rows(3), pixels, targets.data());
    return targets;
  };
  const std::uint8_t bytes[] = {0, 1, 200};
  CHECK(read(Scalar::uint8, false, bytes) == Numbers{0, 1, 200});
  const std::uint16_t words[] = {0, 1, 50256};  // saturates where it is read as a signed short
  CHECK(read(Scalar::uint16, false, words) == Numbers{0, 1, 50256});
  const std::uint16_t swapped[] = {0, 0x0100, 0x50c4};
  CHECK(read(Scalar::uint16, true, swapped) == Numbers{0, 1, 50256});
  const std::int32_t ints[] = {0, 1, 999999};
  CHECK(read(Scalar::int32, false, ints) == Numbers{0, 1, 999999});
  const std::int64_t longs[] = {0, 1, 999999};
  CHECK(read(Scalar::int64, false, longs) == Numbers{0, 1, 999999});
}

TEST_CASE("a shard that changes or vanishes after it was opened is an error that names it") {
  const TemporaryFolder folder;
  const auto paths = make_shards(folder.path(), {40, 40});
  const DataSet data = DataSet::open(folder.path());
  Rows before(data, Access::rows, 0);
  CHECK(reads_right(before, {0, 79}));
  std::filesystem::resize_file(paths[1],
                               static_cast<std::uintmax_t>(data.shards()[1].inputs.offset + 16 * 12 + 5));
  CHECK(reads_right(before, {0}));
  try {
    reads_right(before, {39, 40 + 12});
    FAIL("a row was read beyond the end of its file");
  } catch (const DataError& error) {
    CHECK_THAT(error.what(),
               contains("shard-00001.h5, dataset inputs, row 12") && contains("the file ends at byte"));
  }
  Rows after(data, Access::blocks);
  CHECK_THROWS_WITH(reads_right(after, {79}), contains("shard-00001.h5: has ") && contains("bytes, but had"));
  std::filesystem::remove(paths[0]);
  CHECK_THROWS_WITH(reads_right(after, {0}), contains("shard-00000.h5: cannot be opened any more"));
}

TEST_CASE("a row that is cut off within its block is the one that is named") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  constexpr std::int64_t kWidth = 1 << 19;  // two rows a block
  const std::vector<std::uint8_t> inputs(5 * kWidth);
  const Numbers labels(5);
  write_shard(path, {{kWidth}, Scalar::uint8, 5, inputs.data(), labels.data(), 1, {}, {}});
  const DataSet data = DataSet::open(path);
  Rows reader(data, Access::blocks);
  std::vector<std::uint8_t> row(kWidth);
  std::int64_t target = -1;
  const std::int64_t first = 0;
  const std::int64_t last = 2;
  reader.read(std::span(&first, 1), row.data(), &target);
  std::filesystem::resize_file(path,
                               static_cast<std::uintmax_t>(data.shards()[0].inputs.offset + 3 * kWidth + 5));
  CHECK_THROWS_WITH(reader.read(std::span(&last, 1), row.data(), &target),
                    contains("dataset inputs, row 3: the file ends"));
}

TEST_CASE("a damaged chunk is an error that names file, dataset and row") {
  const TemporaryFolder folder;
  const test::CountingFilter filter;
  const std::string path = write_chunked(folder / "a.h5", {64, 16}, {64});
  const DataSet data = DataSet::open(path);
  const std::string bytes = read_text_file(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const std::size_t deflate = bytes.find("\x78\x5e");  // the head of zlib's stream at level 4
  REQUIRE(deflate != std::string::npos);
  file.seekp(static_cast<std::streamoff>(deflate));
  file << "junk";
  file.close();
  Rows reader(data, Access::blocks);
  CHECK_THROWS_WITH(reads_right(reader, {5}), contains("a.h5, dataset inputs, row 0") && contains("inflate"));
}

TEST_CASE("hundreds of shards need few descriptors") {
  const TemporaryFolder folder;
  make_shards(folder.path(), Numbers(200, 2));
  Rows reader(DataSet::open(folder.path()), Access::rows, 0);
  CHECK(reads_right(reader, shuffled_rows(400)));
  const auto descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  CHECK(descriptors < 120);
}

TEST_CASE("reading without end keeps memory flat") {
  const TemporaryFolder folder;
  make_shards(folder.path(), {3000, 3000}, {1, 28, 28});
  const DataSet data = DataSet::open(folder.path());
  Rows reader(data, Access::blocks, 3 << 20);
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    std::int64_t total = 0;
    std::int64_t pages = 0;
    file >> total >> pages;
    return pages * 4096;
  };
  std::vector<std::uint8_t> inputs(600 * 784);
  Numbers targets(600);
  const Numbers rows = shuffled_rows(6000);
  std::int64_t before = 0;
  for (int turn = 0; turn < 30; ++turn) {
    if (turn == 10) before = resident();
    const Numbers some(rows.begin() + turn * 200, rows.begin() + turn * 200 + 200);
    reader.read(some, inputs.data(), targets.data());
    CHECK(reader.cached_bytes() <= 3 << 20);
  }
  CHECK(resident() - before < 4 << 20);
}
