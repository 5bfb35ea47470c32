#include "ops/element.hpp"

namespace lockstep::ops {

Element element_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Element::float32;
    case at::kHalf:
      return Element::float16;
    case at::kBFloat16:
      return Element::bfloat16;
    case at::kByte:
      return Element::uint8;
    default:
      TORCH_CHECK(false, "no fused kernel takes ", tensor.scalar_type());
  }
}

}  // namespace lockstep::ops
