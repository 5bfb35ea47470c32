#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "data/loader.hpp"
#include "data/pack.hpp"
#include "support/catch.hpp"
#include "support/raw_hdf5.hpp"
#include "support/shards.hpp"

using namespace lockstep;
using namespace lockstep::data;
using lockstep::test::contains;
using lockstep::test::make_token_shards;
using lockstep::test::RawDataset;
using lockstep::test::TemporaryFolder;

namespace {

// Rows of tokens in any storage; 3 rows of 4 + 1 tokens below 9 unless told otherwise.
struct OddTokens {
  RawDataset tokens = {"tokens", Scalar::uint16, {3, 5}};
  std::int64_t vocabulary = 9;
};

std::string write_odd(const std::string& path, const OddTokens& shard, const void* values = nullptr) {
  const std::vector<std::byte> zeros(1 << 10);
  test::add_dataset(path, shard.tokens, values != nullptr ? values : zeros.data());
  test::add_string_attribute(path, "format", "lockstep-1");
  test::add_integer_attribute(path, "vocabulary", shard.vocabulary);
  return path;
}

bool holds_row(const std::uint16_t* values, std::int64_t row, std::int64_t length, std::int64_t vocabulary) {
  for (std::int64_t i = 0; i <= length; ++i) {
    if (values[i] != test::token(row * length + i, vocabulary)) return false;
  }
  return true;
}

void read_all(const std::string& path) {
  Rows rows(DataSet::open(path), Access::blocks);
  std::vector<std::byte> memory(static_cast<std::size_t>(rows.data().decoded_bytes()));
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < rows.data().rows(); ++row) numbers.push_back(row);
  rows.read(numbers, memory.data(), nullptr);
}

}  // namespace

TEST_CASE("token shards are a data set of rows of T + 1 ids, with a description and without targets") {
  const TemporaryFolder folder;
  make_token_shards(folder.path(), {5, 0, 7});
  const DataSet data = DataSet::open(folder.path());
  CHECK(data.tokens());
  CHECK(data.rows() == 12);
  CHECK(data.input_shape() == Shape{6});
  CHECK(data.stored_shape() == Shape{7});
  CHECK(data.targets_per_row() == 6);
  CHECK(data.input_scalar() == Scalar::uint16);
  CHECK(data.input_row_bytes() == 14);
  CHECK(data.classes() == 11);
  CHECK(data.decoded_bytes() == 12 * 14);
  CHECK(data.row_blocks().edges == std::vector<std::int64_t>{0, 5, 12});
  CHECK(data.row_blocks().row_bytes == 14);
  const DataSet copy = DataSet::from_description(data.describe());
  CHECK(copy.describe() == data.describe());
  CHECK(copy.tokens());
  CHECK(copy.fingerprint() == data.fingerprint());
}

TEST_CASE("vocabularies up to 65,536 are stored as uint16, larger ones as uint32") {
  const TemporaryFolder folder;
  for (const std::int64_t vocabulary : {65536, 65537}) {
    const std::string path = folder / (std::to_string(vocabulary) + ".h5");
    const std::vector<std::uint32_t> tokens{0, static_cast<std::uint32_t>(vocabulary - 1), 7};
    write_token_shard(path, {1, 2, tokens, vocabulary, "abc"});
    const DataSet data = DataSet::open(path);
    CHECK(data.input_scalar() == (vocabulary == 65536 ? Scalar::uint16 : Scalar::uint32));
    CHECK(data.tokenizer_hash() == "abc");
    CHECK_NOTHROW(read_all(path));
  }
}

TEST_CASE("the fingerprint of labelled data is what checkpoints of earlier versions hold") {
  const DataSet data = DataSet::from_description(
      R"({"tokens":false,"tokenizer":"","input_shape":[1,4,4],"input_scalar":"uint8","target_scalar":"int32",)"
      R"("classes":10,"mean":[],"std":[],"shards":[["/somewhere/a.h5",5,4711,[2048,5,1,false],[4096,5,1,false]]]})");
  CHECK(data.fingerprint() == hash_text("uint8[1, 4, 4]int32 10\na.h5 4711 5 5"));
}

TEST_CASE("the fingerprint tells vocabularies, tokenizers and kinds apart") {
  const TemporaryFolder folder;
  std::set<std::uint64_t> prints;
  const std::vector<std::uint32_t> tokens(7);
  for (const auto& [vocabulary, tokenizer] : {std::pair{11, "a"}, {12, "a"}, {11, "b"}, {11, ""}}) {
    const std::string path = folder / "a.h5";
    write_token_shard(path, {2, 3, tokens, vocabulary, tokenizer});
    std::filesystem::resize_file(path, 20000);  // so that sizes do not give it away
    prints.insert(DataSet::open(path).fingerprint());
    std::filesystem::remove(path);
  }
  CHECK(prints.size() == 4);
}

TEST_CASE("rows of tokens are read as they stand, contiguous, chunked and big-endian") {
  const TemporaryFolder folder;
  make_token_shards(folder / "plain", {5, 7});
  Rows rows(DataSet::open(folder / "plain"), Access::blocks);
  const std::vector<std::int64_t> wanted{11, 0, 5, 4};
  std::vector<std::uint16_t> values(4 * 7);
  rows.read(wanted, values.data(), nullptr);
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(holds_row(values.data() + i * 7, wanted[i], 6, 11));

  const std::vector<std::uint16_t> stored{1, 2, 3, 4, 5, 5, 6, 7, 8, 0, 0, 1, 2, 3, 4};
  OddTokens odd;
  odd.tokens.chunk = {2, 3};
  odd.tokens.gzip = 1;
  odd.tokens.big_endian = true;
  std::vector<std::uint16_t> swapped;
  for (const std::uint16_t value : stored) swapped.push_back(static_cast<std::uint16_t>(value << 8));
  Rows chunked(DataSet::open(write_odd(folder / "odd.h5", odd, swapped.data())), Access::blocks);
  std::vector<std::uint16_t> read(stored.size());
  chunked.read(std::vector<std::int64_t>{0, 1, 2}, read.data(), nullptr);
  CHECK(read == stored);
}

TEST_CASE("the loader gives slots of token rows without targets, in the order of any other data") {
  const TemporaryFolder folder;
  make_token_shards(folder.path(), {9, 8});
  const DataSet data = DataSet::open(folder.path());
  Order order(data.row_blocks(), 7, 4);
  LoaderSettings settings;
  settings.end_step = 10;
  Loader loader(data, order, settings);
  for (std::int64_t step = 0; step < settings.end_step; ++step) {
    const Slot& slot = loader.next();
    CHECK(slot.targets == nullptr);
    CHECK(slot.global_count == (step % 5 == 4 ? 1 : 4));
    for (std::size_t i = 0; i < slot.rows.size(); ++i) {
      CHECK(slot.rows[i] == order.row(step, static_cast<std::int64_t>(i)));
      std::uint16_t values[7];
      std::memcpy(values, slot.inputs + i * sizeof values, sizeof values);
      CHECK(holds_row(values, slot.rows[i], 6, 11));
    }
    loader.release(slot);
  }
}

TEST_CASE("a token outside of the vocabulary is named with file, row, place and both values") {
  const TemporaryFolder folder;
  const auto check = [&](Scalar scalar, const auto& values, const std::string& words) {
    OddTokens shard;
    shard.tokens.scalar = scalar;
    const std::string path = write_odd(folder / "a.h5", shard, values.data());
    CHECK_THROWS_WITH(read_all(path), contains("a.h5, dataset tokens, row 1") && contains(words) &&
                                          contains("the vocabulary [0, 9)"));
    const DataSet data = DataSet::open(path);
    LoaderSettings settings;
    settings.end_step = 1;
    Loader loader(data, Order(data.row_blocks(), 7, 3), settings);
    CHECK_THROWS_AS(loader.next(), DataError);
    std::filesystem::remove(path);
  };
  check(Scalar::uint16, std::vector<std::uint16_t>{1, 2, 3, 4, 5, 5, 6, 9, 8, 0, 0, 1, 2, 3, 4},
        "token 9 at position 2");
  check(Scalar::int32, std::vector<std::int32_t>{1, 2, 3, 4, 5, 5, 6, 7, 8, -1, 0, 1, 2, 3, 4},
        "token -1 at position 4");
  check(Scalar::uint32, std::vector<std::uint32_t>{1, 2, 3, 4, 5, 4294967295u, 6, 7, 8, 0, 0, 1, 2, 3, 4},
        "token 4294967295 at position 0");
}

TEST_CASE("token shards that cannot be are refused with what they hold") {
  const TemporaryFolder folder;
  const auto check = [&](const OddTokens& shard, const std::string& words) {
    const std::string path = write_odd(folder / "a.h5", shard);
    CHECK_THROWS_WITH(DataSet::open(path), contains(words) && contains("a.h5"));
    std::filesystem::remove(path);
  };
  OddTokens shard;
  shard.tokens.shape = {5};
  check(shard, "has shape [5]; it must be [rows, T + 1]");
  shard.tokens.shape = {5, 1};
  check(shard, "has shape [5, 1]");
  shard.tokens = {"tokens", Scalar::float32, {3, 5}};
  check(shard, "holds float32; token ids are uint16, uint32 or int32");
  shard = {};
  shard.vocabulary = 0;
  check(shard, "attribute vocabulary is 0");

  const std::string both = write_odd(folder / "both.h5", {});
  test::add_dataset(both, {"inputs", Scalar::uint8, {4}}, "abcd");
  CHECK_THROWS_WITH(DataSet::open(both), contains("tokens beside inputs"));
}

TEST_CASE("shards of different kinds, lengths, vocabularies or tokenizers are refused with both") {
  const TemporaryFolder folder;
  make_token_shards(folder / "set", {3});
  const std::vector<std::uint32_t> tokens(9);
  const auto check = [&](const std::string& words, const std::function<void(const std::string&)>& write) {
    const std::string path = folder / "set/z.h5";
    write(path);
    CHECK_THROWS_WITH(DataSet::open(folder / "set"),
                      contains(words) && contains("z.h5") && contains("shard-00000.h5"));
    std::filesystem::remove(path);
  };
  check("its kind is labelled rows, but tokens", [&](const auto& path) {
    std::filesystem::rename(test::make_shards(folder / "images", {2})[0], path);
  });
  check("row shape is [4], but [6]", [&](const auto& path) {
    write_token_shard(path, {2, 4, tokens, 11, ""});
  });
  check("attribute vocabulary is 12, but 11", [&](const auto& path) {
    write_token_shard(path, {1, 6, std::span(tokens).first(7), 12, ""});
  });
  check("attribute tokenizer is abc, but missing", [&](const auto& path) {
    write_token_shard(path, {1, 6, std::span(tokens).first(7), 11, "abc"});
  });
}

TEST_CASE("token rows cannot be shifted as images are") {
  const TemporaryFolder folder;
  make_token_shards(folder.path(), {3});
  const DataSet data = DataSet::open(folder.path());
  LoaderSettings settings;
  settings.augment_shift = 1;
  CHECK_THROWS_WITH(Loader(data, Order(data.row_blocks(), 1, 1), settings), contains("cannot be shifted"));
}
