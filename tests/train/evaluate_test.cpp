#include "train/evaluate.hpp"

#include <torch/torch.h>

#include <cstring>
#include <numeric>

#include "small.hpp"
#include "support/catch.hpp"
#include "train/input.hpp"

using namespace lockstep;
using config::Precision;

namespace {

/// The definition: batches in file order, on this rank alone.
train::Evaluation alone(test::SmallNet& net, const data::DataSet& data, std::int64_t batch) {
  torch::NoGradGuard no_grad;
  net.eval();
  data::Rows rows(data, data::Access::blocks);
  const train::Normaliser normalise(data, at::kCPU, Precision::fp32);
  double loss = 0;
  std::int64_t correct = 0;
  for (std::int64_t first = 0; first < data.rows(); first += batch) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(batch, data.rows() - first)));
    std::iota(numbers.begin(), numbers.end(), first);
    const auto count = static_cast<std::int64_t>(numbers.size());
    const at::Tensor raw = at::empty({count, 1, 4, 4}, at::kByte);
    const at::Tensor targets = at::empty({count}, at::kLong);
    rows.read(numbers, raw.data_ptr(), targets.data_ptr<std::int64_t>());
    const auto result = net.loss({normalise(raw), targets});
    loss += result.sum.item<double>();
    correct += result.correct.item<std::int64_t>();
  }
  const auto total = static_cast<double>(data.rows());
  return {loss / total, static_cast<double>(correct) / total, data.rows()};
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

TEST_CASE("an evaluation has the bits of one process, whatever the ranks, with ranks that have no batch",
          "[ranks]") {
  const auto world = mpi::Communicator::world();
  for (const std::vector<std::int64_t>& shards : {std::vector<std::int64_t>{14, 7}, {7}, {1}}) {
    const test::SharedData data(world, shards);
    for (const std::int64_t batch : {4, 1, 100}) {
      INFO(data.set().rows() << " rows in batches of " << batch);
      const auto net = test::small_net(3, 0.5);
      const auto expected = alone(*net, data.set(), batch);
      net->train();
      data::Rows rows(data.set(), data::Access::blocks);
      const auto seen = train::evaluate(*net, rows, batch, Precision::fp32, at::kCPU, world);
      CHECK(same_bits(seen.loss, expected.loss));
      REQUIRE(seen.accuracy.has_value());
      CHECK(same_bits(*seen.accuracy, *expected.accuracy));
      CHECK(seen.rows == data.set().rows());
    }
  }
}

TEST_CASE("an evaluation leaves the model in its former mode and keeps no gradient", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {7});
  for (const bool training : {true, false}) {
    const auto net = test::small_net(3, 0.5);
    net->train(training);
    data::Rows rows(data.set(), data::Access::blocks);
    train::evaluate(*net, rows, 4, Precision::fp32, at::kCPU, world);
    CHECK(net->is_training() == training);
    CHECK(net->drawn.empty());  // dropout drew nothing
    for (const auto& parameter : net->parameters()) CHECK_FALSE(parameter.grad().defined());
  }
}

TEST_CASE("a model that does not tell which rows are right has a loss and no accuracy", "[ranks]") {
  const auto world = mpi::Communicator::world();
  const test::SharedData data(world, {7});
  torch::manual_seed(3);
  test::SmallNet net(0, false);
  data::Rows rows(data.set(), data::Access::blocks);
  const auto seen = train::evaluate(net, rows, 4, Precision::fp32, at::kCPU, world);
  CHECK(std::isfinite(seen.loss));
  CHECK_FALSE(seen.accuracy.has_value());
}
