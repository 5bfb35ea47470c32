#include "data/tokenizer.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "support/catch.hpp"
#include "support/shards.hpp"

using namespace lockstep;
using namespace lockstep::data;
using lockstep::test::contains;
using lockstep::test::TemporaryFolder;

namespace {

using Tokens = std::vector<std::int32_t>;

// Enough English-like text for a small vocabulary.
std::string some_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += lockstep::text("The ", i, "th sentence of this text says that rank ", i % 7,
                           " waits for nobody,\n  and the next one repeats it.\n\n");
  }
  return text;
}

Tokenizer trained() {
  static const Tokenizer tokenizer = Tokenizer::train(std::vector<std::string>{some_text()}, 400);
  return tokenizer;
}

}  // namespace

TEST_CASE("bytes are their own tokens, any of them, and one more ends a text") {
  const Tokenizer tokenizer = Tokenizer::bytes();
  CHECK(tokenizer.vocabulary() == 257);
  CHECK(tokenizer.end_of_text() == 256);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const Tokens tokens = tokenizer.encode(all, "");
  CHECK(tokens.size() == 256);
  CHECK(tokens[200] == 200);
  CHECK(tokenizer.decode(tokens) == all);
  CHECK(tokenizer.decode(Tokens{72, 256, 105}) == "Hi");
  CHECK(tokenizer.encode("", "").empty());
  CHECK_THROWS_WITH(tokenizer.decode(Tokens{257}), contains("token 257") && contains("[0, 257)"));
  CHECK_THROWS_WITH(tokenizer.decode(Tokens{-1}), contains("token -1"));
}

TEST_CASE("a trained tokenizer gives every text back as it was, and needs fewer tokens than bytes") {
  const Tokenizer tokenizer = trained();
  CHECK(tokenizer.vocabulary() == 400);
  for (const std::string& text :
       {some_text(),
        std::string("  two spaces,\ttab, \r\n\n lines and \x01 \xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80 end "),
        std::string("\n"), std::string(" "), std::string("</s> is no end")}) {
    const Tokens tokens = tokenizer.encode(text, "");
    CHECK(tokenizer.decode(tokens) == text);
    CHECK(std::find(tokens.begin(), tokens.end(), tokenizer.end_of_text()) == tokens.end());
  }
  CHECK(tokenizer.encode(some_text(), "").size() < some_text().size() / 2);
  CHECK(tokenizer.decode(Tokens{tokenizer.end_of_text()}) == "");
}

TEST_CASE("a long text has the tokens of its lines, so that cutting it changes nothing") {
  const Tokenizer tokenizer = trained();
  std::string text;
  while (text.size() < 300'000) text += some_text();
  Tokens by_line;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin) + 1;
    const Tokens line = tokenizer.encode(text.substr(begin, end - begin), "");
    by_line.insert(by_line.end(), line.begin(), line.end());
    begin = end;
  }
  CHECK(tokenizer.encode(text, "") == by_line);
  CHECK(tokenizer.decode(by_line) == text);
  const std::string one_line(200'000, 'a');
  CHECK(tokenizer.decode(tokenizer.encode(one_line, "")) == one_line);
}

TEST_CASE("training twice on the same texts gives the same tokenizer, on others another") {
  const std::vector<std::string> texts{some_text(), "one more\n"};
  CHECK(Tokenizer::train(texts, 350).hash() == Tokenizer::train(texts, 350).hash());
  CHECK(Tokenizer::train(texts, 350).hash() != Tokenizer::train(texts, 351).hash());
  CHECK(Tokenizer::bytes().hash() != Tokenizer::train(texts, 350).hash());
}

TEST_CASE("a vocabulary that the text cannot fill, or that has no room for bytes, is refused with its size") {
  const std::vector<std::string> texts{"a few words\n"};
  for (const std::int64_t vocabulary : {100, 100'000}) {
    try {
      Tokenizer::train(texts, vocabulary);
      FAIL("no error for " << vocabulary);
    } catch (const UsageError& error) {
      CHECK_THAT(error.what(), contains(text("a vocabulary of ", vocabulary)));
      CHECK(error.code() == ExitCode::bad_data);
    }
  }
}

TEST_CASE("a stored tokenizer comes back, with the same hash") {
  const TemporaryFolder folder;
  for (const Tokenizer& tokenizer : {Tokenizer::bytes(), trained()}) {
    const std::string place = folder / tokenizer.kind();
    make_folder(place);
    tokenizer.save(place);
    const Tokenizer copy = Tokenizer::load(place);
    CHECK(copy.kind() == tokenizer.kind());
    CHECK(copy.hash() == tokenizer.hash());
    CHECK(copy.vocabulary() == tokenizer.vocabulary());
    CHECK(copy.end_of_text() == tokenizer.end_of_text());
    CHECK(copy.encode("The end", "") == tokenizer.encode("The end", ""));
  }
}

TEST_CASE("what is no tokenizer, or was changed, is refused by name") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(Tokenizer::load(folder.path()), contains("tokenizer.json"));
  const auto check = [&](const std::string& content, const std::string& words) {
    std::ofstream(folder / "tokenizer.json", std::ios::trunc) << content;
    CHECK_THROWS_WITH(Tokenizer::load(folder.path()), contains(words) && contains(folder.path()));
  };
  check("words", "is no description of a tokenizer");
  check("{}", "is no description of a tokenizer");
  check(R"({"kind": "runes", "hash": "0"})", "kind \"runes\"");
  check(R"({"kind": "bytes", "hash": "0"})", "was changed");
  trained().save(folder.path());
  std::ofstream(folder / "tokenizer.model", std::ios::app) << "more";
  CHECK_THROWS_AS(Tokenizer::load(folder.path()), DataError);
  for (const std::string model : {"", "these are words and no model", "\n\x05"}) {
    CHECK_THROWS_WITH(Tokenizer::sentencepiece(model, "my.model"),
                      contains("my.model") && contains("is no SentencePiece model"));
  }
}

TEST_CASE("a text that is not UTF-8 is refused by sentencepiece with file and byte") {
  CHECK_THROWS_WITH(trained().encode("caf\xe9 here", "a.txt"),
                    contains("a.txt") && contains("byte 3 is not UTF-8") && contains("--tokenizer bytes"));
}

TEST_CASE("UTF-8 is what RFC 3629 says") {
  for (const std::string good : {"", "abc", "\xc3\xa9", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbd",
                                 "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(first_invalid_utf8(good) == -1);
  }
  const std::vector<std::pair<std::string, std::int64_t>> bad = {{"a\x80", 1},
                                                                 {"\xc0\xaf", 0},
                                                                 {"ab\xc3", 2},
                                                                 {"\xc3(", 0},
                                                                 {"\xe0\x9f\xbf", 0},
                                                                 {"\xed\xa0\x80", 0},
                                                                 {"\xf0\x8f\xbf\xbf", 0},
                                                                 {"\xf4\x90\x80\x80", 0},
                                                                 {"x\xf5\x80\x80\x80", 1},
                                                                 {"\xe2\x82", 0},
                                                                 {"\xff", 0},
                                                                 {"\xf0\x9f\x98 ", 0}};
  for (const auto& [text, offset] : bad) CHECK(first_invalid_utf8(text) == offset);
}
