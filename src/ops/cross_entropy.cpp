#include "ops/cross_entropy.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "ops/element.hpp"
#include "ops/kernels.hpp"

namespace lockstep::ops {

namespace {

class FusedCrossEntropy : public torch::autograd::Function<FusedCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets) {
    const auto rows = logits.size(0);
    const auto floats = logits.options().dtype(at::kFloat);
    const at::Tensor row_sums = at::empty({rows, 2}, floats);
    const at::Tensor losses = at::empty({rows}, floats);
    const at::Tensor sum = at::empty({}, floats);
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    cuda_kernels::cross_entropy_forward({logits.const_data_ptr(), element_of(logits), rows, logits.size(1)},
                                        targets.const_data_ptr<std::int64_t>(),
                                        static_cast<cuda_kernels::RowSum*>(row_sums.data_ptr()),
                                        losses.data_ptr<float>(), sum.data_ptr<float>(), stream);
    context->save_for_backward({logits, targets, row_sums});
    return sum;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const at::Tensor result = at::empty_like(logits);
    const at::Tensor scale = gradients[0].contiguous();
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    cuda_kernels::cross_entropy_backward(
        {logits.const_data_ptr(), element_of(logits), logits.size(0), logits.size(1)},
        saved[1].const_data_ptr<std::int64_t>(),
        static_cast<const cuda_kernels::RowSum*>(saved[2].const_data_ptr()), scale.const_data_ptr<float>(),
        result.data_ptr(), stream);
    return {result, at::Tensor()};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  TORCH_CHECK(logits.dim() == 2 && targets.dim() == 1 && logits.size(0) == targets.size(0),
              "cross_entropy_sum: logits ", logits.sizes(), " do not fit targets ", targets.sizes());
  if (!logits.is_cuda()) return reference::cross_entropy_sum(logits, targets);
  return FusedCrossEntropy::apply(logits.contiguous(), targets.contiguous());
}

at::Tensor reference::cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  // Float before the loss: in half, nll_loss would keep its count in half and overflow at 65,520 rows.
  const auto wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const at::Tensor picked = at::log_softmax(wide, 1).gather(1, targets.unsqueeze(1));
  return -picked.sum();
}

}  // namespace lockstep::ops
