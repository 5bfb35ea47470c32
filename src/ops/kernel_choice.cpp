#include "ops/kernel_choice.hpp"

#include <ATen/cuda/CUDAContext.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::ops {

namespace {

constexpr int kOldestMajor = 8;
Kernels chosen = Kernels::automatic;

}  // namespace

void set_kernels(Kernels kernels) {
  chosen = kernels;
}

bool fused_allowed() {
  return chosen != Kernels::reference;
}

bool use_fused(const at::Tensor& x, const std::function<bool()>& supported, const char* what) {
  if (chosen == Kernels::reference) return false;
  const bool low = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const int major = x.is_cuda() ? at::cuda::getDeviceProperties(x.get_device())->major : 0;
  const bool device_fits = low && major >= kOldestMajor;
  if (device_fits && supported()) return true;
  if (chosen == Kernels::automatic) return false;
  if (device_fits)
    throw UsageError(text("--ops fused: there is no fused form of ", what, "; use --ops auto"));
  throw UsageError(text("--ops fused needs fp16 or bf16 on a GPU of compute capability ", kOldestMajor,
                        ".0 or newer, here are ", toString(x.scalar_type()), " values on ",
                        x.is_cuda() ? text("a GPU of capability ", major, ".x") : std::string("the CPU"),
                        "; use --ops auto"));
}

}  // namespace lockstep::ops
