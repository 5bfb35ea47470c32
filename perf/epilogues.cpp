// Which way of computing bias, GELU and their gradients is fastest: inside a matrix product or beside it.
//   epilogues TOKENS WIDTH
// Times, over memory larger than the cache, each pair of ways for the linear layers of a GPT-2 block; one
// JSON line each.
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "ops/column_sums.hpp"
#include "ops/fused_library.hpp"
#include "ops/product_beside.hpp"

using namespace lockstep;

namespace {

double microseconds(const std::function<void()>& body) {
  for (int i = 0; i < 3; ++i) body();
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    body();
    end.record();
    end.synchronize();
    times.push_back(begin.elapsed_time(end) * 1e3);
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10];
}

void report(const char* name, const std::function<void()>& body) {
  std::printf("{\"way\": \"%s\", \"us\": %.1f}\n", name, microseconds(body));
}

}  // namespace

int main(int, char** arguments) {
  const std::int64_t rows = std::atol(arguments[1]), width = std::atol(arguments[2]);
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const auto half = at::TensorOptions(at::kCUDA).dtype(at::kHalf);
  const auto make = [&](std::int64_t r, std::int64_t c, double scale) {
    return at::randn({r, c}, half) * scale;
  };
  const at::Tensor x = make(rows, width, 1), d_out = make(rows, width, 0.1),
                   d_qkv = make(rows, 3 * width, 0.1);
  const at::Tensor before = make(rows, 4 * width, 1), hidden = at::gelu(before, "tanh");
  const at::Tensor in_weight = make(4 * width, width, 0.02), out_weight = make(width, 4 * width, 0.02);
  const at::Tensor bias = make(1, 4 * width, 0.1).flatten(), sums = at::zeros_like(bias);
  const at::Tensor wide = at::empty_like(before), dw_in = make(4 * width, width, 0),
                   dw_out = make(width, 4 * width, 0);
  const at::Tensor dw_qkv = make(3 * width, width, 0), dw_proj = make(width, width, 0);
  const at::Tensor sums1 = at::zeros({width}, half), sums3 = at::zeros({3 * width}, half);
  using cuda::Epilogue;
  report("in: product",
         [&] { ops::multiply({.left = x, .right = in_weight, .right_transposed = true}, wide); });
  report("in: product, bias", [&] {
    ops::multiply(
        {.left = x, .right = in_weight, .right_transposed = true, .epilogue = Epilogue::bias, .bias = bias},
        wide);
  });
  report("in: product, bias, gelu", [&] {
    ops::multiply({.left = x,
                   .right = in_weight,
                   .right_transposed = true,
                   .epilogue = Epilogue::bias_gelu,
                   .bias = bias,
                   .auxiliary = before},
                  wide);
  });
  const bool beside = ops::runs_beside(x, 4 * width);  // on this device, in this build, for this size
  if (beside) {
    report("in: bias and gelu beside", [&] { ops::product_bias_gelu(x, in_weight, bias, before, wide); });
    report("d hidden: slope and sums beside",
           [&] { ops::product_times(d_out, out_weight, before, wide, sums, true); });
  }
  const at::Tensor qkv_weight = make(3 * width, width, 0.02), proj_weight = make(width, width, 0.02);
  const at::Tensor bias3 = make(1, 3 * width, 0.1).flatten(), bias1 = make(1, width, 0.1).flatten();
  const at::Tensor qkv = at::empty_like(d_qkv), narrow = at::empty_like(x);
  report("qkv: product",
         [&] { ops::multiply({.left = x, .right = qkv_weight, .right_transposed = true}, qkv); });
  report("qkv: product, bias", [&] {
    ops::multiply(
        {.left = x, .right = qkv_weight, .right_transposed = true, .epilogue = Epilogue::bias, .bias = bias3},
        qkv);
  });
  if (beside) report("qkv: bias beside", [&] { ops::product_bias(x, qkv_weight, bias3, qkv); });
  const auto adding = [&](const char* name, const at::Tensor& left, const at::Tensor& weight) {
    report((std::string(name) + ": product").c_str(),
           [&] { ops::multiply({.left = left, .right = weight, .right_transposed = true}, narrow); });
    report((std::string(name) + ": product, residual").c_str(), [&] {
      ops::multiply({.left = left, .right = weight, .right_transposed = true, .added = d_out}, narrow);
    });
    report((std::string(name) + ": product, residual, bias").c_str(), [&] {
      ops::multiply({.left = left,
                     .right = weight,
                     .right_transposed = true,
                     .epilogue = Epilogue::bias,
                     .added = d_out,
                     .bias = bias1},
                    narrow);
    });
  };
  adding("proj", x, proj_weight);
  adding("out", hidden, out_weight);
  report("d hidden: product", [&] { ops::multiply({.left = d_out, .right = out_weight}, wide); });
  report("d hidden: product with slope", [&] {
    ops::multiply({.left = d_out, .right = out_weight, .epilogue = Epilogue::gelu_slope, .auxiliary = before},
                  wide);
  });
  report("d hidden: product with slope and sums", [&] {
    ops::multiply({.left = d_out,
                   .right = out_weight,
                   .epilogue = Epilogue::gelu_slope_sums,
                   .bias = sums,
                   .auxiliary = before},
                  wide);
  });
  report("d hidden: kernel for slope and sums", [&] { ops::gelu_gradient(wide, before, sums, true); });
  report("sums 1", [&] { ops::column_sums(d_out, sums1, true); });
  report("sums 3", [&] { ops::column_sums(d_qkv, sums3, true); });
  report("sums 4", [&] { ops::column_sums(wide, sums, true); });
  const auto weights = [&](const char* name, const at::Tensor& left, const at::Tensor& right,
                           const at::Tensor& to, const at::Tensor& into) {
    report(name,
           [&] { ops::multiply({.left = left, .left_transposed = true, .right = right, .added = to}, to); });
    report((std::string(name) + ", with sums").c_str(), [&] {
      ops::multiply({.left = left,
                     .left_transposed = true,
                     .right = right,
                     .epilogue = Epilogue::left_sums,
                     .added = to,
                     .bias = into},
                    to);
    });
    report((std::string(name) + ", not adding").c_str(),
           [&] { ops::multiply({.left = left, .left_transposed = true, .right = right}, to); });
    if (beside)
      report((std::string(name) + ", sums beside").c_str(),
             [&] { ops::weight_gradient_beside(left, right, to, true, into, true); });
  };
  weights("dw qkv", d_qkv, x, dw_qkv, sums3);
  weights("dw proj", d_out, x, dw_proj, sums1);
  weights("dw in", before, x, dw_in, sums);
  weights("dw out", d_out, hidden, dw_out, sums1);
  return 0;
}
