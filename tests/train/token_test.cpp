// Rows of tokens, from the batch to the metrics.
#include <torch/torch.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/text.hpp"
#include "cuda/device.hpp"
#include "data/pack.hpp"
#include "data/tokenizer.hpp"
#include "small.hpp"
#include "support/catch.hpp"
#include "support/step_rig.hpp"
#include "token_net.hpp"
#include "train/reporter.hpp"
#include "train/stored_run.hpp"

using namespace lockstep;
using config::Precision;
using test::contains;

namespace {

constexpr std::int64_t kLength = 6;
constexpr std::int64_t kVocabulary = 11;

std::function<void(const std::string&)> tokens_of(std::vector<std::int64_t> rows) {
  return [rows](const std::string& path) { test::make_token_shards(path, rows, kLength, kVocabulary); };
}

/// All rows of `data` as one batch.
models::Batch whole(const data::DataSet& data) {
  data::Rows rows(data, data::Access::blocks);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(data.rows()));
  std::iota(numbers.begin(), numbers.end(), 0);
  const at::Tensor raw = at::empty({data.rows() * data.input_row_bytes()}, at::kByte);
  rows.read(numbers, raw.data_ptr(), nullptr);
  return train::token_batch(train::raw_inputs(data, raw.data_ptr(), data.rows(), at::kCPU));
}

config::TrainSettings settings_of(std::int64_t global_batch, std::int64_t micro_batch) {
  config::TrainSettings settings;
  settings.precision = Precision::fp32;
  settings.global_batch = global_batch;
  settings.micro_batch = micro_batch;
  settings.data.shuffle = config::ShuffleMode::none;
  settings.run.steps = 3;
  settings.optimizer.kind = config::OptimizerKind::sgd;
  settings.optimizer.lr = 0;
  return settings;
}

}  // namespace

TEST_CASE(
    "a batch of tokens holds the first T of each row and the T that follow them, int64 and contiguous") {
  for (const auto type : {at::kUInt16, at::kUInt32, at::kInt}) {
    const at::Tensor rows = torch::tensor({{1, 2, 3, 4}, {4, 60000, 6, 7}}).to(type);
    const models::Batch batch = train::token_batch(rows);
    CHECK(batch.inputs.equal(torch::tensor({{1, 2, 3}, {4, 60000, 6}}).to(at::kLong)));
    CHECK(batch.targets.equal(torch::tensor({{2, 3, 4}, {60000, 6, 7}}).to(at::kLong)));
    for (const auto& part : {batch.inputs, batch.targets}) {
      CHECK(part.scalar_type() == at::kLong);
      CHECK(part.is_contiguous());
    }
    CHECK(train::token_batch(rows.narrow(0, 0, 0)).targets.sizes() == at::IntArrayRef({0, 3}));
  }
}

TEST_CASE("the loss of a step is the mean over the tokens of the global batch, however it is cut",
          "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, tokens_of({7, 6}));
  const auto net = test::token_net();
  const models::Batch all = whole(data.set());
  std::vector<double> losses;
  for (std::int64_t row = 0; row < 13; ++row) {
    losses.push_back(
        net->loss({all.inputs.narrow(0, row, 1), all.targets.narrow(0, row, 1)}).sum.item<double>());
  }
  for (const std::int64_t micro : {0, 1, 2}) {
    test::StepRig rig(settings_of(8, micro), data.set(), world, test::token_net());
    for (const auto& [first, last] : {std::pair{0, 8}, {8, 13}, {0, 8}}) {
      const auto state = rig.run();
      CHECK(rig.input.global_count() == (last - first) * kLength);
      const double sum = std::accumulate(losses.begin() + first, losses.begin() + last, 0.0);
      CHECK(state.loss == Approx(sum / static_cast<double>((last - first) * kLength)).epsilon(1e-5));
    }
  }
}

TEST_CASE("tokens are learnt: the loss falls below that of guessing", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, [](const std::string& path) {
    make_folder(path);
    std::vector<std::uint32_t> tokens;  // each token has one successor
    for (std::uint32_t i = 0; i <= 20 * kLength; ++i) tokens.push_back(i * 3 % kVocabulary);
    data::write_token_shard(path + "/a.h5", {20, kLength, tokens, kVocabulary, ""});
  });
  for (const auto precision : {Precision::fp32, Precision::fp16}) {
    auto settings = settings_of(8, 0);
    settings.precision = precision;
    settings.optimizer.kind = config::OptimizerKind::adamw;
    settings.optimizer.lr = 0.1;
    settings.run.steps = 60;
    test::StepRig rig(settings, data.set(), world, test::token_net());
    float loss = 0;
    for (int step = 0; step < 60; ++step) loss = rig.run().loss;
    CHECK(loss < 0.1);
  }
}

TEST_CASE("an evaluation of tokens tells loss a token and perplexity, with the same bits on any ranks",
          "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, tokens_of({7, 6}));
  const auto net = test::token_net();
  const double expected = net->loss(whole(data.set())).sum.item<double>() / (13 * kLength);
  for (const std::int64_t batch : {1, 4, 100}) {
    double loss = 0;
    torch::NoGradGuard no_grad;
    const models::Batch all = whole(data.set());
    for (std::int64_t first = 0; first < 13; first += batch) {
      const std::int64_t count = std::min<std::int64_t>(batch, 13 - first);
      loss += net->loss({all.inputs.narrow(0, first, count), all.targets.narrow(0, first, count)})
                  .sum.item<double>();
    }
    loss /= 13 * kLength;
    data::Rows rows(data.set(), data::Access::blocks);
    const auto seen = train::evaluate(*net, rows, batch, Precision::fp32, at::kCPU, world);
    CHECK(std::memcmp(&seen.loss, &loss, sizeof loss) == 0);
    CHECK(seen.loss == Approx(expected).epsilon(1e-6));
    CHECK(seen.rows == 13);
    CHECK_FALSE(seen.accuracy.has_value());
    CHECK(seen.perplexity.value() == std::exp(seen.loss));
  }
  CHECK(train::evaluation_batch(5, data.set()) == 5);
  CHECK(train::evaluation_batch(0, data.set()) == 8192 / kLength);
}

TEST_CASE("a report tells tokens a second, and MFU where operations and peak are known") {
  const test::TemporaryFolder folder;
  config::RunSettings settings;
  settings.folder = folder.path();
  settings.report_every = 1;
  settings.progress = config::ProgressMode::off;
  const auto report = [&](std::int64_t step, const train::Speed& speed) {
    train::Reporter reporter(settings, {100, 4, 25}, speed, step - 1, step, 0);
    reporter.step({step, {}}, 0, 0);
    std::string lines = read_text_file(folder / "metrics.jsonl");
    return nlohmann::json::parse(lines.substr(lines.rfind('\n', lines.size() - 2) + 1));
  };
  const auto images = report(1, {});
  CHECK_FALSE(images.contains("tokens_per_second"));
  CHECK_FALSE(images.contains("mfu"));
  const auto tokens =
      report(2, {.tokens_per_sample = 64, .operations_per_sample = 5e9, .peak_operations = 0});
  const double rate = tokens.at("samples_per_second").get<double>();
  CHECK(tokens.at("tokens_per_second").get<double>() == Approx(64 * rate));
  CHECK_FALSE(tokens.contains("mfu"));
  const auto known =
      report(3, {.tokens_per_sample = 64, .operations_per_sample = 5e9, .peak_operations = 2e12});
  CHECK(known.at("mfu").get<double>() == Approx(known.at("samples_per_second").get<double>() * 5e9 / 2e12));
}

TEST_CASE("a step takes what the device says it took, whenever the host looks") {
  const test::TemporaryFolder folder;
  config::RunSettings settings;
  settings.folder = folder.path();
  settings.report_every = 2;
  settings.progress = config::ProgressMode::off;
  train::Reporter reporter(settings, {100, 4, 25}, {}, 0, 4, 0);
  for (std::int64_t step = 1; step <= 4; ++step)
    reporter.step({step, {}, 0.25 * static_cast<double>(step)}, 0, 0);
  const std::string lines = read_text_file(folder / "metrics.jsonl");
  const auto first = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  const auto second = nlohmann::json::parse(lines.substr(lines.find('\n') + 1));
  CHECK(first.at("step_seconds").get<double>() == Approx(0.375));
  CHECK(second.at("step_seconds").get<double>() == Approx(0.875));
  CHECK(second.at("samples_per_second").get<double>() == Approx(8 / 1.75));
}

TEST_CASE("peaks are known of the devices that they were looked up for, and of no other") {
  CHECK(cuda::peak_half_operations(9, 0) == 989e12);
  CHECK(cuda::peak_half_operations(8, 0) == 312e12);
  CHECK(cuda::peak_half_operations(7, 5) == 0);
  CHECK(cuda::peak_half_operations(9, 9) == 0);
}

TEST_CASE(
    "the tokenizer beside token shards is taken when it made them, and refused by both hashes otherwise") {
  const test::TemporaryFolder folder;
  const data::Tokenizer tokenizer = data::Tokenizer::bytes();
  const std::vector<std::uint32_t> tokens(7);
  const auto set = [&](const std::string& name, std::int64_t vocabulary, const std::string& hash) {
    make_folder(folder / name);
    data::write_token_shard(folder / (name + "/a.h5"), {2, 3, tokens, vocabulary, hash});
    return data::DataSet::open(folder / name);
  };
  const auto good = set("good", 257, tokenizer.hash());
  CHECK_FALSE(train::tokenizer_beside(good, folder / "good").has_value());
  tokenizer.save(folder / "good");
  CHECK(train::tokenizer_beside(good, folder / "good")->hash() == tokenizer.hash());
  CHECK(train::tokenizer_beside(good, folder / "good/a.h5")->hash() == tokenizer.hash());
  const auto padded = set("padded", 300, "");
  tokenizer.save(folder / "padded");
  CHECK(train::tokenizer_beside(padded, folder / "padded").has_value());
  const auto foreign = set("foreign", 257, "0123");
  tokenizer.save(folder / "foreign");
  CHECK_THROWS_WITH(train::tokenizer_beside(foreign, folder / "foreign"),
                    contains("0123") && contains(tokenizer.hash()) && contains("tokenizer.json"));
  const auto small = set("small", 20, "");
  tokenizer.save(folder / "small");
  CHECK_THROWS_WITH(train::tokenizer_beside(small, folder / "small"), contains("257") && contains("20"));
  test::make_shards(folder / "images", {3});
  tokenizer.save(folder / "images");
  CHECK_FALSE(train::tokenizer_beside(data::DataSet::open(folder / "images"), folder / "images").has_value());
}

TEST_CASE("what a checkpoint says of its data makes the model's request again") {
  const test::TemporaryFolder folder;
  test::make_token_shards(folder / "data", {3});
  const auto set = data::DataSet::open(folder / "data");
  train::StoredRun run;
  run.settings.model.name = "some";
  run.checkpoint = folder.path();
  write_file_atomically(folder / "state.json", nlohmann::json{{"data", train::shape_of(set)}}.dump());
  const auto request = train::stored_request(run);
  const auto expected = train::request_for(run.settings.model, set);
  CHECK(request.tokens);
  CHECK(request.settings.name == "some");
  CHECK(request.input_shape == expected.input_shape);
  CHECK(request.classes == expected.classes);
  write_file_atomically(folder / "state.json", "{}");
  CHECK_THROWS_WITH(train::stored_request(run), contains("state.json") && contains("does not say"));
}
