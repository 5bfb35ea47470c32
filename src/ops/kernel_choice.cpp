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

bool use_fused(const at::Tensor& x) {
  if (chosen == Kernels::reference) return false;
  const bool low = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const int major = x.is_cuda() ? at::cuda::getDeviceProperties(x.get_device())->major : 0;
  if (low && major >= kOldestMajor) return true;
  if (chosen == Kernels::automatic) return false;
  throw UsageError(text("--ops fused needs fp16 or bf16 on a GPU of compute capability ", kOldestMajor,
                        ".0 or newer, here are ", toString(x.scalar_type()), " values on ",
                        x.is_cuda() ? text("a GPU of capability ", major, ".x") : std::string("the CPU"),
                        "; use --ops auto"));
}

}  // namespace lockstep::ops
