#include "ops/normalise.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "ops/element.hpp"
#include "ops/kernels.hpp"

namespace lockstep::ops {

at::Tensor normalise(const at::Tensor& in, const at::Tensor& scale, const at::Tensor& shift,
                     at::ScalarType type) {
  TORCH_CHECK(in.dim() >= 2 && in.size(1) == scale.numel() && scale.numel() == shift.numel(),
              "normalise: inputs ", in.sizes(), " do not fit ", scale.numel(), " channels");
  if (!in.is_cuda() || in.numel() == 0) return reference::normalise(in, scale, shift, type);
  const at::Tensor source = in.contiguous();
  const at::Tensor out = at::empty(in.sizes(), in.options().dtype(type));
  const auto columns = in.numel() / in.size(0);
  cuda_kernels::normalise({source.const_data_ptr(), element_of(source), in.size(0), columns},
                          columns / in.size(1), scale.const_data_ptr<float>(), shift.const_data_ptr<float>(),
                          in.size(1), out.data_ptr(), element_of(out),
                          c10::cuda::getCurrentCUDAStream().stream());
  return out;
}

at::Tensor reference::normalise(const at::Tensor& in, const at::Tensor& scale, const at::Tensor& shift,
                                at::ScalarType type) {
  std::vector<std::int64_t> per_channel(static_cast<std::size_t>(in.dim()), 1);
  per_channel[1] = scale.numel();
  return at::addcmul(shift.view(per_channel), in.to(at::kFloat), scale.view(per_channel)).to(type);
}

}  // namespace lockstep::ops
