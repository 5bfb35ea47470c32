#pragma once
#include <ATen/core/Tensor.h>
namespace lockstep::ops {
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& token_weight, const at::Tensor& position_weight);
}
