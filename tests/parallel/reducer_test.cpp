#include <torch/torch.h>

#include "base/error.hpp"
#include "mpi/communicator.hpp"
#include "parallel/gradient_reducer.hpp"
#include "support/catch.hpp"
#include "support/gradients.hpp"

using namespace lockstep;
using config::Precision;

namespace {

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(6, 40));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({40})));
    second = register_module("second", torch::nn::Linear(40, 3));
    unused = register_module("unused", torch::nn::Linear(2, 2));
  }
  at::Tensor loss(const at::Tensor& x, bool use_all = true) {
    at::Tensor sum = second(torch::tanh(norm(first(x)))).square().sum();
    if (use_all) sum = sum + unused(x.narrow(1, 0, 2)).sum();
    return sum;
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};

/// A rank's rows of a global batch of 8 (ragged where the ranks do not divide it).
at::Tensor rows_of(int rank, int size) {
  torch::manual_seed(9);
  const at::Tensor all = torch::randn({8, 6});
  const auto first = 8 * rank / size;
  return all.narrow(0, first, 8 * (rank + 1) / size - first);
}

struct Setup {
  explicit Setup(const mpi::Communicator& world, Precision precision, const config::ReduceSettings& settings)
      : ranks(comm::make_communicator(world, {}, nullptr)) {
    torch::manual_seed(5);
    net = std::make_unique<Net>();
    flat = std::make_unique<precision::FlatParameters>(
        *net, precision, [this](std::int64_t bytes) { return ranks->allocate(bytes); });
    reducer = std::make_unique<parallel::GradientReducer>(*flat, *ranks, settings,
                                                          comm::Buffer{&loss, 1, comm::Scalar::float32});
  }
  std::unique_ptr<comm::Communicator> ranks;
  std::unique_ptr<Net> net;
  std::unique_ptr<precision::FlatParameters> flat;
  std::unique_ptr<parallel::GradientReducer> reducer;
  float loss = 0;
};

at::Tensor reduced(Setup& setup, const mpi::Communicator& world, int micro_batches) {
  setup.flat->clear_gradients();
  const at::Tensor rows = rows_of(world.rank(), world.size());
  setup.loss = 1;
  for (int micro = 0; micro < micro_batches; ++micro) {
    setup.reducer->arm(micro + 1 == micro_batches);
    const auto first = rows.size(0) * micro / micro_batches;
    const auto last = rows.size(0) * (micro + 1) / micro_batches;
    setup.net->loss(rows.narrow(0, first, last - first)).backward();
  }
  setup.reducer->finish();
  return at::cat(test::stored_gradients(*setup.flat));
}

}  // namespace

TEST_CASE("buckets cover every parameter once, in order, within one part, the first one small") {
  const std::vector<parallel::Place> places{{0, 100},   {128, 60},  {192, 1000},
                                            {1216, 10}, {1280, 30}, {1344, 30}};
  config::ReduceSettings settings;
  settings.first_bucket_bytes = 200;
  settings.bucket_bytes = 4000;
  const auto buckets = parallel::bucket_layout(places, 1280, settings);
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].parameters == std::vector<std::size_t>{0});
  CHECK(buckets[1].parameters == std::vector<std::size_t>{1, 2, 3});
  CHECK(buckets[1].range.begin == 128);
  CHECK(buckets[1].range.count == 1216 + 10 - 128);
  CHECK(buckets[2].parameters == std::vector<std::size_t>{4, 5});  // floats: another array
}

TEST_CASE("reduced gradients are those of the whole batch on one rank, in any number of micro-batches",
          "[ranks]") {
  const auto world = mpi::Communicator::world();
  for (const auto precision : {Precision::fp32, Precision::fp16}) {
    for (const bool overlap : {true, false}) {
      for (const int micro_batches : {1, 2, 3}) {
        config::ReduceSettings settings;
        settings.overlap = overlap ? config::OverlapMode::on : config::OverlapMode::off;
        settings.first_bucket_bytes = 16;
        settings.bucket_bytes = 128;
        Setup setup(world, precision, settings);
        const at::Tensor values = reduced(setup, world, micro_batches);
        CHECK(setup.loss == world.size());

        torch::manual_seed(5);
        Net whole;
        precision::FlatParameters alone(whole, precision, [&](std::int64_t bytes) {
          return std::shared_ptr<void>(std::calloc(static_cast<std::size_t>(bytes), 1), std::free);
        });
        alone.clear_gradients();
        whole.loss(rows_of(0, 1)).backward();
        alone.store_gradients();
        const at::Tensor expected = at::cat(test::stored_gradients(alone));
        // In half an element whose float lies within rounding of an edge may fall to either side of it.
        const at::Tensor differs = (values - expected).abs() > 1e-5 * expected.abs() + 1e-4;
        CHECK(differs.sum().item<std::int64_t>() <= (precision == Precision::fp32 ? 0 : 2));
        CHECK(((values - expected).abs() <= 1e-3 * expected.abs() + 1e-4).all().item<bool>());
      }
    }
  }
}

TEST_CASE("an inf on one rank, each in turn, arrives on all", "[ranks]") {
  const auto world = mpi::Communicator::world();
  Setup setup(world, Precision::fp16, {});
  for (int planted = 0; planted < world.size(); ++planted) {
    setup.flat->clear_gradients();
    setup.reducer->arm(true);
    const float factor = planted == world.rank() ? std::numeric_limits<float>::infinity() : 1.0f;
    (setup.net->loss(rows_of(world.rank(), world.size())) * factor).backward();
    setup.reducer->finish();
    CHECK_FALSE(setup.flat->first_nonfinite().empty());
  }
}

TEST_CASE("a parameter without a gradient is named") {
  const auto world = mpi::Communicator::world();
  Setup setup(world, Precision::fp32, {});
  setup.reducer->arm(true);
  setup.net->loss(rows_of(0, 1), false).backward();
  CHECK_THROWS_WITH(setup.reducer->finish(), test::contains("unused.bias got no gradient"));
}

TEST_CASE("a parameter with two gradients in one pass is named") {
  const auto world = mpi::Communicator::world();
  Setup setup(world, Precision::fp32, {});
  setup.reducer->arm(true);
  setup.net->loss(rows_of(0, 1)).backward();
  setup.net->loss(rows_of(0, 1)).backward();
  CHECK_THROWS_WITH(setup.reducer->finish(), test::contains("2 times"));
}

TEST_CASE("every rank starts from rank 0's masters", "[ranks]") {
  const auto world = mpi::Communicator::world();
  Setup setup(world, Precision::fp16, {});
  setup.flat->masters().fill_(static_cast<float>(world.rank()) + 0.5f);
  parallel::broadcast_parameters(*setup.flat, *setup.ranks);
  CHECK(setup.flat->masters().eq(0.5f).all().item<bool>());
  CHECK(setup.net->first->weight.eq(0.5f).all().item<bool>());
}
