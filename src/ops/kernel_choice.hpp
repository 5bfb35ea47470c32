#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Which of its two forms an op of a transformer takes.
enum class Kernels {
  automatic,  ///< fused where the device and the type allow it
  fused,      ///< fused, or UsageError
  reference,  ///< plain ATen
};

/// For all ops of this process from now on, as LibTorch's own choices of arithmetic are.
void set_kernels(Kernels kernels);

/// False where plain ATen was asked for; ops whose fused form takes any type and device of CUDA ask no more.
bool fused_allowed();

/// True where the fused form is to be used for activations like `x`: half or bfloat16 on a GPU of compute
/// capability 8.0 or newer. Throws UsageError where Kernels::fused cannot be had.
bool use_fused(const at::Tensor& x);

}  // namespace lockstep::ops
