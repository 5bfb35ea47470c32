#include "data/pack_text.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "data/reader.hpp"
#include "data/tokenizer.hpp"
#include "support/catch.hpp"
#include "support/shards.hpp"

using namespace lockstep;
using namespace lockstep::data;
using lockstep::test::contains;
using lockstep::test::TemporaryFolder;

namespace fs = std::filesystem;

namespace {

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string verse(int count) {
  std::string words;
  for (int i = 0; i < count; ++i) words += text("line ", i, " of a text that goes on\n");
  return words;
}

PackText settings_for(const TemporaryFolder& folder, std::int64_t length = 8) {
  PackText settings;
  settings.input = folder / "in.txt";
  settings.output = folder / "train";
  settings.sequence_length = length;
  return settings;
}

// The text of a data set of bytes, ends of texts as '|'.
std::string read_text(const std::string& path) {
  Rows rows(DataSet::open(path), Access::blocks);
  const auto length = static_cast<std::size_t>(rows.data().stored_shape()[0]);
  std::string words;
  std::vector<std::uint16_t> values(length);
  for (std::int64_t row = 0; row < rows.data().rows(); ++row) {
    const std::uint16_t last = values.back();
    rows.read(std::vector<std::int64_t>{row}, values.data(), nullptr);
    if (row > 0) CHECK(values.front() == last);
    for (std::size_t i = row > 0; i < length; ++i)
      words += values[i] == 256 ? '|' : static_cast<char>(values[i]);
  }
  return words;
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_text_file(entry.path().string());
  }
  return files;
}

std::string refusal(const PackText& settings) {
  try {
    pack_text(settings);
  } catch (const Error& error) {
    CHECK_FALSE(fs::exists(settings.output + ".partial"));
    return text(static_cast<int>(error.code()), ' ', error.what());
  }
  return "";
}

}  // namespace

TEST_CASE(
    "rows hold the text from its begin, one token shared by neighbours, and the end of the text after it") {
  const TemporaryFolder folder;
  write(folder / "in.txt", "0123456789abcdefghijk");
  auto settings = settings_for(folder);
  const PackTextResult result = pack_text(settings);
  CHECK(result.documents == 1);
  CHECK(result.tokens == 22);
  CHECK(result.train_rows == 2);
  CHECK(result.tokens_left_out == 5);
  CHECK(result.vocabulary == 257);
  CHECK(read_text(settings.output) == "0123456789abcdefg");
  settings.sequence_length = 21;
  settings.overwrite = true;
  CHECK(pack_text(settings).tokens_left_out == 0);
  CHECK(read_text(settings.output) == "0123456789abcdefghijk|");
}

TEST_CASE("a folder's *.txt are documents in the order of their names, empty and other files passed over") {
  const TemporaryFolder folder;
  make_folder(folder / "texts");
  write(folder / "texts/b.txt", "second");
  write(folder / "texts/a.txt", "first");
  write(folder / "texts/c.txt", "");
  write(folder / "texts/d.md", "no");
  auto settings = settings_for(folder, 12);
  settings.input = folder / "texts";
  const PackTextResult result = pack_text(settings);
  CHECK(result.documents == 2);
  CHECK(result.empty_files == 1);
  CHECK(read_text(settings.output) == "first|second|");
}

TEST_CASE("shards and the validation set divide the rows: the last ones are for validation") {
  const TemporaryFolder folder;
  const std::string words = verse(40);
  write(folder / "in.txt", words);
  auto settings = settings_for(folder, 10);
  settings.shards = 3;
  settings.validation_output = folder / "validation";
  settings.validation_fraction = 0.25;
  const PackTextResult result = pack_text(settings);
  const std::int64_t rows = static_cast<std::int64_t>(words.size()) / 10;
  CHECK(result.validation_rows == std::llround(0.25 * static_cast<double>(rows)));
  CHECK(result.train_rows + result.validation_rows == rows);
  CHECK(DataSet::open(settings.output).shards().size() == 3);
  CHECK(result.files.size() == 4);
  const auto cut = static_cast<std::size_t>(result.train_rows * 10);
  CHECK(read_text(settings.output) == words.substr(0, cut + 1));
  CHECK(read_text(settings.validation_output) ==
        (words + '|').substr(cut, static_cast<std::size_t>(result.validation_rows * 10 + 1)));
  for (const auto& output : {settings.output, settings.validation_output}) {
    CHECK(Tokenizer::load(output).hash() == DataSet::open(output).tokenizer_hash());
  }
}

TEST_CASE("packing twice gives the same bytes, with either kind of tokenizer") {
  const TemporaryFolder folder;
  write(folder / "in.txt", verse(300));
  for (const auto& [tokenizer, vocabulary] : {std::pair{"bytes", 0}, {"sentencepiece", 300}}) {
    auto settings = settings_for(folder);
    settings.tokenizer = tokenizer;
    settings.vocabulary = vocabulary;
    settings.shards = 2;
    settings.overwrite = true;
    pack_text(settings);
    const auto first = contents(settings.output);
    CHECK(first.size() == (vocabulary == 0 ? 3 : 4));
    pack_text(settings);
    CHECK(first == contents(settings.output));
  }
}

TEST_CASE("a tokenizer is taken from a packed folder, or from a model file") {
  const TemporaryFolder folder;
  write(folder / "in.txt", verse(300));
  auto settings = settings_for(folder);
  settings.tokenizer = "sentencepiece";
  settings.vocabulary = 300;
  pack_text(settings);
  const std::string hash = Tokenizer::load(settings.output).hash();
  settings.vocabulary = 0;
  for (const std::string& source : {folder / "train", folder / "train/tokenizer.model"}) {
    settings.output = folder / ("again" + std::to_string(source.size()));
    settings.tokenizer = source;
    pack_text(settings);
    CHECK(DataSet::open(settings.output).tokenizer_hash() == hash);
    CHECK(DataSet::open(settings.output).classes() == 300);
  }
}

TEST_CASE("gzip is read as the text that it holds") {
  const TemporaryFolder folder;
  // "hello hello hello" as gzip -n writes it.
  const unsigned char stored[] = {0x1f, 0x8b, 0x08, 0,    0,    0,    0,    0,    0,    0x03,
                                  0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x90, 0,
                                  0x80, 0x88, 0xf9, 0xe5, 0x11, 0,    0,    0};
  write(folder / "in.txt", std::string(reinterpret_cast<const char*>(stored), sizeof stored));
  auto settings = settings_for(folder, 17);
  pack_text(settings);
  CHECK(read_text(settings.output) == "hello hello hello|");
}

TEST_CASE("texts that cannot be packed are refused by name, and nothing is left") {
  const TemporaryFolder folder;
  auto settings = settings_for(folder);
  CHECK_THAT(refusal(settings), contains("66 ") && contains("in.txt") && contains("no such file"));
  write(folder / "in.txt", "");
  CHECK_THAT(refusal(settings), contains("65 ") && contains("in.txt") && contains("is empty"));
  write(folder / "in.txt", "1234567");
  CHECK_THAT(refusal(settings), contains("65 ") && contains("8 tokens") && contains("--sequence-length 8"));
  write(folder / "in.txt", "12345678");
  CHECK(refusal(settings) == "");
  make_folder(folder / "none");
  settings.input = folder / "none";
  settings.output = folder / "other";
  CHECK_THAT(refusal(settings), contains("66 ") && contains("no *.txt"));
  settings = settings_for(folder);
  settings.output = folder / "other";
  settings.validation_output = folder / "validation";
  settings.validation_fraction = 0.5;
  CHECK_THAT(refusal(settings), contains("65 ") && contains("1 row of 8"));
  write(folder / "in.txt", verse(300) + "\xff");
  settings = settings_for(folder);
  settings.output = folder / "other";
  for (const auto& [tokenizer, vocabulary] :
       {std::pair<std::string, int>{"sentencepiece", 300}, {"bytes", 0}}) {
    settings.tokenizer = tokenizer;
    settings.vocabulary = vocabulary;
    if (vocabulary > 0) {
      CHECK_THAT(refusal(settings), contains("65 ") && contains("in.txt") && contains("is not UTF-8"));
    } else {
      CHECK(refusal(settings) == "");
    }
  }
}

TEST_CASE("settings that cannot be are refused with their values") {
  const TemporaryFolder folder;
  write(folder / "in.txt", verse(30));
  const auto check = [&](const std::string& words, const auto& change) {
    auto settings = settings_for(folder);
    change(settings);
    const std::string seen = refusal(settings);
    CHECK_THAT(seen, contains("64 ") && contains(words));
    CHECK_FALSE(fs::exists(settings.output));
  };
  check("--sequence-length 0", [](auto& s) { s.sequence_length = 0; });
  check("into 0 shards", [](auto& s) { s.shards = 0; });
  check("into 1000 shards", [](auto& s) { s.shards = 1000; });
  check("--validation-fraction 1", [](auto& s) { s.validation_fraction = 1; });
  check("go together", [](auto& s) { s.validation_fraction = 0.5; });
  check("go together", [](auto& s) { s.validation_output = "v"; });
  check("cannot share", [](auto& s) {
    s.validation_fraction = 0.5;
    s.validation_output = s.output + "/";
  });
  check("needs --vocabulary", [](auto& s) { s.tokenizer = "sentencepiece"; });
  check("--vocabulary 300 belongs to", [](auto& s) { s.vocabulary = 300; });
  auto settings = settings_for(folder);
  settings.tokenizer = folder / "in.txt";
  CHECK_THAT(refusal(settings),
             contains("65 ") && contains("in.txt") && contains("is no SentencePiece model"));
  settings.tokenizer = "byte";
  CHECK_THAT(refusal(settings), contains("66 byte") && contains("bytes, sentencepiece"));
}

TEST_CASE("a folder that holds shards is replaced when asked, one that holds something else never") {
  const TemporaryFolder folder;
  write(folder / "in.txt", verse(30));
  auto settings = settings_for(folder);
  pack_text(settings);
  CHECK_THAT(refusal(settings), contains("73 ") && contains("--overwrite"));
  settings.overwrite = true;
  settings.shards = 2;
  pack_text(settings);
  CHECK(DataSet::open(settings.output).shards().size() == 2);
  write(folder / "train/notes.md", "mine");
  CHECK_THAT(refusal(settings), contains("73 ") && contains("notes.md"));
  CHECK(fs::exists(folder / "train/notes.md"));
}
