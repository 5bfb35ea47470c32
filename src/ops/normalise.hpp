#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// out = in * scale + shift per channel, computed in float, stored as `type`. Not differentiable: it prepares
/// inputs. `in` [rows, channels, ...] uint8 or float; `scale`, `shift` float [channels] on the same device.
at::Tensor normalise(const at::Tensor& in, const at::Tensor& scale, const at::Tensor& shift,
                     at::ScalarType type);

namespace reference {
at::Tensor normalise(const at::Tensor& in, const at::Tensor& scale, const at::Tensor& shift,
                     at::ScalarType type);
}  // namespace reference

}  // namespace lockstep::ops
