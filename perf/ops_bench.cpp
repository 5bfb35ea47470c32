// Times the fused ops' kernels at the sizes of GPT-2 and checks what they computed: ops_bench [name-part].
// One JSON line a kernel; the formulas are in perf/README.md. Needs a GPU.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/element.hpp"
#include "ops/embedding.hpp"
#include "ops/kernels.hpp"
#include "ops/layer_norm.hpp"

using namespace lockstep;
namespace kernels = ops::cuda_kernels;

namespace {

constexpr std::int64_t kLength = 1024;
constexpr std::int64_t kVocabulary = 50257;
constexpr std::int64_t kPadded = 50304;
constexpr int kLaunches = 40;
constexpr double kCacheBytes = 50e6;
constexpr double kBytesPerSecond = 4.3e12;  // of an H200: what floors are stated for

const auto kOptions = at::TensorOptions().device(at::kCUDA);

/// What is timed. Launches take turns with `sets` of buffers, so that no kernel finds in the L2 cache what
/// the step would have evicted.
struct Case {
  std::string name;
  std::string shape;
  double bytes;  ///< that must move
  int sets;
  std::function<void(int set)> launch;
  std::function<bool()> check;
};

cudaStream_t stream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

int sets_for(double bytes) {
  return std::clamp(static_cast<int>(std::ceil(4 * kCacheBytes / bytes)), 1, kLaunches);
}

template <class Make>
std::vector<at::Tensor> copies(int count, Make make) {
  std::vector<at::Tensor> made;
  for (int i = 0; i < count; ++i) made.push_back(make());
  return made;
}

at::Tensor random_half(at::IntArrayRef shape) {
  return torch::randn(shape, kOptions.dtype(at::kHalf));
}

ops::Matrix matrix(const at::Tensor& x) {
  return {x.const_data_ptr(), ops::element_of(x), x.size(0), x.size(1)};
}

std::string text_of(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

bool is_near(const at::Tensor& seen, const at::Tensor& expected, double relative, double absolute) {
  const at::Tensor error = (seen.to(at::kDouble) - expected.to(at::kDouble)).abs();
  return (error <= expected.to(at::kDouble).abs() * relative + absolute).all().item<bool>();
}

/// Microseconds a launch: the median of five replays of a graph with kLaunches of them.
double time_launches(const std::function<void(int)>& launch, int sets) {
  for (int i = 0; i < sets; ++i) launch(i);
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < kLaunches; ++i) launch(i % sets);
  graph.capture_end();
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cuda::check(cudaEventCreate(&begin), "cudaEventCreate");
  cuda::check(cudaEventCreate(&end), "cudaEventCreate");
  graph.replay();
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    float milliseconds = 0;
    cuda::check(cudaEventRecord(begin, stream()), "cudaEventRecord");
    graph.replay();
    cuda::check(cudaEventRecord(end, stream()), "cudaEventRecord");
    cuda::check(cudaEventSynchronize(end), "cudaEventSynchronize");
    cuda::check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    times.push_back(1e3 * milliseconds / kLaunches);
  }
  cuda::check(cudaEventDestroy(begin), "cudaEventDestroy");
  cuda::check(cudaEventDestroy(end), "cudaEventDestroy");
  std::sort(times.begin(), times.end());
  return times[2];
}

Case layer_norm_forward(std::int64_t rows, std::int64_t columns) {
  const double bytes = 2.0 * 2 * static_cast<double>(rows * columns);
  const int sets = sets_for(bytes);
  const auto x = copies(sets, [&] { return random_half({rows, columns}); });
  const auto out = copies(sets, [&] { return random_half({rows, columns}); });
  const at::Tensor weight = torch::randn({columns}, kOptions);
  const at::Tensor bias = torch::randn({columns}, kOptions);
  const at::Tensor statistics = torch::empty({2, rows}, kOptions);
  const auto launch = [=](int i) {
    auto* const mean = statistics.data_ptr<float>();
    kernels::layer_norm_forward(matrix(x[i]), weight.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                                1e-5f, out[i].data_ptr(), mean, mean + rows, stream());
  };
  const auto check = [=] {
    const at::Tensor expected = ops::reference::layer_norm(x[0].to(at::kDouble), weight, bias, 1e-5).out;
    return is_near(out[0], expected, 6e-4, 3e-5);
  };
  return {"layer_norm_forward", text_of(rows, columns), bytes, sets, launch, check};
}

Case layer_norm_backward(std::int64_t rows, std::int64_t columns) {
  const double bytes = 4.0 * 2 * static_cast<double>(rows * columns);
  const int sets = sets_for(bytes);
  const auto make = [&] { return random_half({rows, columns}); };
  const auto x = copies(sets, make);
  const auto d_out = copies(sets, make);
  const auto d_passed = copies(sets, make);
  const auto dx = copies(sets, make);
  const at::Tensor weight = torch::randn({columns}, kOptions);
  const at::Tensor bias = torch::zeros({columns}, kOptions);
  const at::Tensor wide = x[0].to(at::kFloat);
  const at::Tensor mean = wide.mean(1);
  const at::Tensor rstd = (wide.var(1, /*unbiased=*/false) + 1e-5).rsqrt();
  const at::Tensor partials = torch::empty({kernels::layer_norm_partials(matrix(x[0]))}, kOptions);
  const at::Tensor gradients = torch::zeros({2, columns}, kOptions);
  const auto launch = [=](int i) {
    kernels::layer_norm_backward({matrix(x[i]), weight.const_data_ptr<float>(), mean.const_data_ptr<float>(),
                                  rstd.const_data_ptr<float>()},
                                 d_out[i].const_data_ptr(), d_passed[i].const_data_ptr(), dx[i].data_ptr(),
                                 partials.data_ptr<float>(), stream());
    auto* const target = gradients.data_ptr<float>();
    kernels::layer_norm_parameters(matrix(x[i]), partials.const_data_ptr<float>(), {target, false},
                                   {target + columns, false}, stream());
  };
  const auto check = [=] {
    launch(0);
    const at::Tensor leaf = x[0].to(at::kDouble).requires_grad_();
    const at::Tensor scale = weight.to(at::kDouble).requires_grad_();
    const auto [out, passed] = ops::reference::layer_norm(leaf, scale, bias, 1e-5);
    torch::autograd::backward({out, passed}, {d_out[0].to(at::kDouble), d_passed[0].to(at::kDouble)});
    return is_near(dx[0], leaf.grad(), 6e-4, 5e-5) && is_near(gradients[0], scale.grad(), 1e-4, 2e-2);
  };
  return {"layer_norm_backward", text_of(rows, columns), bytes, sets, launch, check};
}

/// Tokens as in text: the frequency of the r-th most frequent falls as 1 / r (Zipf).
at::Tensor text_tokens(std::int64_t batch) {
  const at::Tensor frequency = 1.0 / (torch::arange(kVocabulary, kOptions.dtype(at::kFloat)) + 2.7);
  const at::Tensor order = torch::randperm(kVocabulary, kOptions.dtype(at::kLong));
  const at::Tensor ranks = torch::multinomial(frequency, batch * kLength, /*replacement=*/true);
  return order.index_select(0, ranks).view({batch, kLength});
}

std::vector<Case> embedding(std::int64_t batch, std::int64_t columns) {
  const std::int64_t count = batch * kLength;
  const kernels::EmbeddingShape shape{batch, kLength, columns, kPadded};
  const at::Tensor tokens = text_tokens(batch);
  const at::Tensor words = random_half({kPadded, columns});
  const at::Tensor places = random_half({kLength, columns});
  const auto unique = static_cast<double>(std::get<0>(at::_unique(tokens)).numel());
  const double pass = 2.0 * static_cast<double>(count * columns);
  const double touched = 2 * unique * 2.0 * static_cast<double>(columns);
  const int sets = sets_for(pass);
  const auto make = [&] { return random_half({count, columns}); };
  const auto out = copies(sets, make);
  const at::Tensor d_words = torch::zeros_like(words);
  const at::Tensor d_places = torch::zeros_like(places);
  const at::Tensor scratch = torch::empty({4, count}, kOptions.dtype(at::kInt));
  const at::Tensor work =
      torch::empty({static_cast<std::int64_t>(kernels::sort_bytes(shape))}, kOptions.dtype(at::kByte));
  const at::Tensor partials = torch::empty({kernels::token_partials(shape)}, kOptions);
  auto* const first = scratch.data_ptr<std::int32_t>();
  const kernels::SortedTokens sorted{reinterpret_cast<std::uint32_t*>(first), first + count,
                                     reinterpret_cast<std::uint32_t*>(first + 2 * count), first + 3 * count,
                                     work.data_ptr()};
  const auto half = ops::Element::float16;
  const std::string size = text_of(count, columns);
  const auto forward = [=](int i) {
    kernels::embedding_forward(shape, half, tokens.const_data_ptr<std::int64_t>(), words.const_data_ptr(),
                               places.const_data_ptr(), out[i].data_ptr(), stream());
  };
  const auto sort = [=, keep = scratch](int) {
    kernels::sort_tokens(shape, tokens.const_data_ptr<std::int64_t>(), sorted, stream());
  };
  const auto position = [=](int i) {
    kernels::position_gradient(shape, half, out[i].const_data_ptr(), d_places.data_ptr(), stream());
  };
  const auto token = [=](int i) {
    kernels::token_gradient(shape, half, out[i].const_data_ptr(), sorted, partials.data_ptr<float>(),
                            d_words.data_ptr(), stream());
  };
  const auto expect = [=] {
    return ops::reference::embedding(tokens, words.to(at::kDouble), places.to(at::kDouble));
  };
  const auto is_sum = [=](const at::Tensor& target, const std::function<void(int)>& launch, bool of_words) {
    target.zero_();
    launch(0);
    const at::Tensor a = words.to(at::kDouble).requires_grad_();
    const at::Tensor b = places.to(at::kDouble).requires_grad_();
    ops::reference::embedding(tokens, a, b).backward(out[0].to(at::kDouble));
    return is_near(target, of_words ? a.grad() : b.grad(), 6e-4, 5e-3);
  };
  return {
      {"embedding_forward", size, pass + touched / 2, sets, forward,
       [=] { return is_near(out[0], expect(), 6e-4, 1e-5); }},
      {"embedding_position_gradient", size, pass, sets, position,
       [=] { return is_sum(d_places, position, false); }},
      {"embedding_sort", size, 8.0 * static_cast<double>(count), 1, sort,
       [=] {
         return (scratch[0].narrow(0, 1, count - 1) >= scratch[0].narrow(0, 0, count - 1)).all().item<bool>();
       }},
      {"embedding_token_gradient", size, pass + touched, sets, token,
       [=] { return is_sum(d_words, token, true); }}};
}

std::vector<Case> cross_entropy(std::int64_t rows) {
  const at::Tensor logits = random_half({rows, kPadded});
  const at::Tensor targets = torch::randint(0, kVocabulary, {rows}, kOptions.dtype(at::kLong));
  const at::Tensor seed = torch::ones({}, kOptions);
  const at::Tensor losses = torch::empty({rows}, kOptions);
  const at::Tensor sum = torch::empty({}, kOptions);
  const double pass = 2.0 * static_cast<double>(rows * kPadded);
  const auto run = [=](const float* gradient_seed) {
    kernels::cross_entropy_rows(logits.data_ptr(), ops::Element::float16, rows, kPadded, kVocabulary,
                                targets.const_data_ptr<std::int64_t>(), gradient_seed,
                                losses.data_ptr<float>(), stream());
  };
  const auto is_right = [=](const float* gradient_seed) {
    logits.normal_();
    at::Tensor expected = logits.narrow(0, 0, 500).to(at::kDouble);
    at::Tensor expected_losses = torch::empty({500}, kOptions.dtype(at::kDouble));
    ops::reference::cross_entropy_in_place(expected, kVocabulary, targets.narrow(0, 0, 500), seed,
                                           expected_losses);
    run(gradient_seed);
    return is_near(losses.narrow(0, 0, 500), expected_losses, 1e-5, 1e-5) &&
           (gradient_seed == nullptr || is_near(logits.narrow(0, 0, 500), expected, 6e-4, 5e-6));
  };
  const float* const one = seed.const_data_ptr<float>();
  const auto add = [=, keep = seed](int) {
    kernels::sum_floats(losses.const_data_ptr<float>(), rows, sum.data_ptr<float>(), stream());
  };
  return {{"cross_entropy_in_place", text_of(rows, kPadded), 2 * pass, 1, [=](int) { run(one); },
           [=] { return is_right(one); }},
          {"cross_entropy_losses", text_of(rows, kPadded), pass, 1, [=](int) { run(nullptr); },
           [=] { return is_right(nullptr); }},
          {"sum_losses", std::to_string(rows), 4.0 * static_cast<double>(rows), 1, add,
           [=] { return is_near(sum, losses.to(at::kDouble).sum(), 1e-5, 0); }}};
}

/// Bytes a second that an elementwise kernel reads and writes. Not cudaMemcpyAsync, which is slower here.
double copy_rate() {
  constexpr std::int64_t kCount = std::int64_t{1} << 28;
  const at::Tensor from = torch::zeros({kCount}, kOptions);
  at::Tensor to = torch::empty_like(from);
  return 8.0 * kCount / time_launches([&](int) { at::neg_out(to, from); }, 1) * 1e6;
}

bool report(const Case& one, double rate, const std::string& device) {
  const double us = time_launches(one.launch, one.sets);
  const bool right = one.check();
  const double floor_us = one.bytes / kBytesPerSecond * 1e6;
  std::printf(
      "{\"kernel\": \"%s\", \"shape\": \"%s\", \"type\": \"half\", \"us\": %.2f, \"bytes\": %.0f, "
      "\"gb_per_second\": "
      "%.0f, \"floor_us\": %.2f, \"times_the_floor\": %.3f, \"copy_gb_per_second\": %.0f, \"right\": %s, "
      "\"device\": "
      "\"%s\", \"torch\": \"%s\"}\n",
      one.name.c_str(), one.shape.c_str(), us, one.bytes, one.bytes / us * 1e-3, floor_us, us / floor_us,
      rate * 1e-9, right ? "true" : "false", device.c_str(), TORCH_VERSION);
  std::fflush(stdout);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::fprintf(stderr, "ops_bench: there is no GPU here\n");
    return 77;
  }
  const std::string wanted = argc > 1 ? argv[1] : "";
  const std::string device = cuda::describe(0).name;
  const c10::cuda::CUDAStreamGuard on_own_stream(c10::cuda::getStreamFromPool());
  torch::manual_seed(1);
  const double rate = copy_rate();
  bool right = true;
  const auto run = [&](const std::vector<Case>& cases) {
    for (const auto& one : cases) {
      if (one.name.find(wanted) != std::string::npos) right &= report(one, rate, device);
    }
  };
  for (const std::int64_t batch : {64, 4}) {
    run({layer_norm_forward(batch * kLength, 768)});
    run({layer_norm_backward(batch * kLength, 768)});
    run(embedding(batch, 768));
    run(cross_entropy(std::min<std::int64_t>(batch * kLength, 8192)));
  }
  for (const std::int64_t columns : {1024, 1280, 1600}) {
    run({layer_norm_forward(32 * kLength, columns)});
    run({layer_norm_backward(32 * kLength, columns)});
  }
  return right ? 0 : 1;
}
