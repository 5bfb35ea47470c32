#include "cuda/error.hpp"
#include "ops/device.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kThreads = 256;

template <class In, class Out>
__global__ void normalise_kernel(const In* in, std::int64_t count, std::int64_t inner, std::int64_t channels,
                                 const float* scale, const float* shift, Out* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t channel = i / inner % channels;
  out[i] = from_float<Out>(fmaf(to_float(in[i]), scale[channel], shift[channel]));
}

}  // namespace

void normalise(const Matrix& in, std::int64_t inner, const float* scale, const float* shift,
               std::int64_t channels, void* out, Element out_element, cudaStream_t stream) {
  const std::int64_t count = in.rows * in.columns;
  with_floating(out_element, [&](auto* type) {
    using Out = std::remove_pointer_t<decltype(type)>;
    const unsigned blocks = blocks_for(count, kThreads);
    if (in.element == Element::uint8) {
      normalise_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const std::uint8_t*>(in.data), count,
                                                        inner, channels, scale, shift,
                                                        static_cast<Out*>(out));
    } else {
      normalise_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const float*>(in.data), count, inner,
                                                        channels, scale, shift, static_cast<Out*>(out));
    }
  });
  cuda::check(cudaGetLastError(), "normalise");
}

}  // namespace lockstep::ops::cuda_kernels
