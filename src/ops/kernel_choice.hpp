#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

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
/// capability 8.0 or newer, where `supported()` says that there is one. Throws UsageError where
/// Kernels::fused cannot be had; `what` is then the thing that has no fused form.
bool use_fused(const at::Tensor& x, const std::function<bool()>& supported, const char* what);

}  // namespace lockstep::ops
