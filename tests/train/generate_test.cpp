#include "train/generate.hpp"

#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "support/catch.hpp"
#include "token_net.hpp"

using namespace lockstep;
using train::Sampler;

namespace {

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, 0.0f};

std::map<std::int64_t, int> counts(const train::SampleSettings& settings, int draws) {
  Sampler sampler(settings);
  std::map<std::int64_t, int> seen;
  for (int i = 0; i < draws; ++i) ++seen[sampler(kLogits)];
  return seen;
}

struct Written {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> pieces;
  std::string text;
};

Written write(test::TokenNet& net, const std::string& prompt, std::int64_t count,
              const train::SampleSettings& settings = {}, std::int64_t context = 4) {
  const data::Tokenizer tokenizer = data::Tokenizer::bytes();
  Written written;
  written.tokens = train::write_text({net, tokenizer, context, config::Precision::fp32, at::kCPU}, prompt,
                                     count, Sampler(settings), [&](const std::string& piece) {
                                       written.pieces.push_back(piece);
                                       written.text += piece;
                                     });
  return written;
}

}  // namespace

TEST_CASE("temperature 0 takes the likeliest token, the lowest id of equals, whatever the seed") {
  for (const std::uint64_t seed : {1, 2, 3}) CHECK(counts({.temperature = 0, .seed = seed}, 20).at(1) == 20);
}

TEST_CASE("tokens are drawn as often as their probabilities say") {
  for (const double temperature : {1.0, 0.5}) {
    constexpr int kDraws = 20000;
    const auto seen = counts({.temperature = temperature}, kDraws);
    double sum = 0;
    for (const float logit : kLogits) sum += std::exp(logit / temperature);
    for (std::size_t id = 0; id < kLogits.size(); ++id) {
      const double expected = std::exp(kLogits[id] / temperature) / sum;
      const auto found = seen.find(static_cast<std::int64_t>(id));
      const double share = (found == seen.end() ? 0.0 : found->second) / static_cast<double>(kDraws);
      CHECK(share == Approx(expected).margin(4 * std::sqrt(expected / kDraws)));
    }
  }
}

TEST_CASE("top-k leaves the k likeliest, lower ids first of equals; 0 and more than there are leave all") {
  const auto ids = [](std::int64_t k) {
    std::vector<std::int64_t> seen;
    for (const auto& entry : counts({.temperature = 3, .top_k = k}, 2000)) seen.push_back(entry.first);
    return seen;
  };
  CHECK(ids(1) == std::vector<std::int64_t>{1});
  CHECK(ids(2) == std::vector<std::int64_t>{1, 3});
  CHECK(ids(3) == std::vector<std::int64_t>{1, 3, 4});
  CHECK(ids(0).size() == 6);
  CHECK(ids(600).size() == 6);
}

TEST_CASE("one seed draws the same tokens again, another seed others") {
  const auto draw = [](std::uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<std::int64_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler(kLogits));
    return tokens;
  };
  CHECK(draw(1) == draw(1));
  CHECK(draw(1) != draw(2));
}

TEST_CASE(
    "logits that are not finite are an error that names the token, very small ones and low temperatures are "
    "not") {
  Sampler sampler({});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    CHECK_THROWS_WITH(sampler(std::vector<float>{0, 1, bad}), test::contains("token 2"));
  }
  CHECK(sampler(std::vector<float>{-3e38f, 3e38f}) == 1);
  CHECK(Sampler({.temperature = 1e-300})(kLogits) == 1);
}

TEST_CASE("a text goes on from its prompt, token by token, and a seed writes it again") {
  const auto net = test::token_net(257);
  net->eval();
  const Written first = write(*net, "abc", 30);
  CHECK(first.tokens.size() <= 30);
  CHECK(first.tokens == write(*net, "abc", 30).tokens);
  CHECK(first.tokens != write(*net, "abc", 30, {.seed = 2}).tokens);
  std::string text;
  for (const auto token : first.tokens) text += static_cast<char>(token);
  CHECK(first.text == text);
}

TEST_CASE("the model looks back on its context and no further") {
  const auto net = test::token_net(257);
  write(*net, "a prompt that is longer than the context", 30, {}, 5);
  CHECK(net->longest_seen == 5);
  net->longest_seen = 0;
  write(*net, "", 1, {}, 5);
  CHECK(net->longest_seen == 1);  // the end of the document before
}

TEST_CASE("each token is read once until the context is full, then half of it again") {
  const auto net = test::token_net(257);
  for (int token = 0; token < 256; ++token) net->follow(token, 'a');  // never the end
  write(*net, "abc", 12, {}, 7);
  CHECK(net->read == std::vector<std::int64_t>{4, 1, 1, 1, 4, 1, 1, 1, 4, 1, 1, 1});
  net->read.clear();
  write(*net, "abc", 3, {}, 1);
  CHECK(net->read == std::vector<std::int64_t>{1, 1, 1});
}

TEST_CASE("the end of a document ends the text") {
  const auto net = test::token_net(257);
  net->follow('a', 'b');
  net->follow('b', 'c');
  net->follow('c', 256);
  const Written written = write(*net, "xa", 50);
  CHECK(written.text == "bc");
  CHECK(written.tokens == std::vector<std::int32_t>{'b', 'c'});
}

TEST_CASE("a character is printed whole, and what is left at the end is printed as it is") {
  const auto net = test::token_net(257);
  net->follow('a', 0xe2);  // the euro sign, in three bytes
  net->follow(0xe2, 0x82);
  net->follow(0x82, 0xac);
  net->follow(0xac, 256);
  CHECK(write(*net, "a", 9).pieces == std::vector<std::string>{"\xe2\x82\xac"});
  CHECK(write(*net, "a", 2).pieces == std::vector<std::string>{"\xe2\x82"});
}

TEST_CASE("logits beyond the tokenizer's vocabulary, where a model has padded it, are never chosen") {
  const auto net = test::token_net(300);
  net->follow('a', 299);
  for (const auto token : write(*net, "a", 20, {.temperature = 5}).tokens) CHECK(token < 257);
}
