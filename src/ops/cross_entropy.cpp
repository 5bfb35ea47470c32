#include "ops/cross_entropy.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "ops/element.hpp"
#include "ops/kernel_choice.hpp"
#include "ops/kernels.hpp"

namespace lockstep::ops {

namespace {

class FusedCrossEntropy : public torch::autograd::Function<FusedCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, std::int64_t classes) {
    const auto rows = logits.size(0);
    const auto floats = logits.options().dtype(at::kFloat);
    const at::Tensor row_sums = at::empty({rows, 2}, floats);
    const at::Tensor losses = at::empty({rows}, floats);
    const at::Tensor sum = at::empty({}, floats);
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    cuda_kernels::cross_entropy_forward({logits.const_data_ptr(), element_of(logits), rows, logits.size(1)},
                                        classes, targets.const_data_ptr<std::int64_t>(),
                                        static_cast<cuda_kernels::RowSum*>(row_sums.data_ptr()),
                                        losses.data_ptr<float>(), sum.data_ptr<float>(), stream);
    context->save_for_backward({logits, targets, row_sums});
    context->saved_data["classes"] = classes;
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
        context->saved_data["classes"].toInt(), saved[1].const_data_ptr<std::int64_t>(),
        static_cast<const cuda_kernels::RowSum*>(saved[2].const_data_ptr()), scale.const_data_ptr<float>(),
        result.data_ptr(), stream);
    return {result, at::Tensor(), at::Tensor()};
  }
};

void check_rows(const at::Tensor& logits, const at::Tensor& targets, std::int64_t classes) {
  TORCH_CHECK(logits.dim() == 2 && targets.dim() == 1 && logits.size(0) == targets.size(0) && classes >= 1 &&
                  logits.size(1) < (std::int64_t{1} << 31) && classes <= logits.size(1),
              "cross-entropy: logits ", logits.sizes(), " do not fit targets ", targets.sizes(), " and ",
              classes, " classes");
}

/// Rows' losses; with a seed, their gradients too.
void run_rows(const at::Tensor& logits, std::int64_t classes, const at::Tensor& targets, const float* seed,
              const at::Tensor& losses) {
  const at::Tensor places = targets.contiguous();
  // The kernel writes to the logits only with a seed.
  cuda_kernels::cross_entropy_rows(const_cast<void*>(logits.const_data_ptr()), element_of(logits),
                                   logits.size(0), logits.size(1), classes,
                                   places.const_data_ptr<std::int64_t>(), seed, losses.data_ptr<float>(),
                                   c10::cuda::getCurrentCUDAStream().stream());
}

at::Tensor log_probabilities(const at::Tensor& logits, std::int64_t classes) {
  // Float before the loss: in half, nll_loss would keep its count in half and overflow at 65,520 rows.
  const at::Tensor used = logits.narrow(1, 0, classes);
  return at::log_softmax(used.scalar_type() == at::kDouble ? used : used.to(at::kFloat), 1);
}

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, std::int64_t classes) {
  if (classes == -1 && logits.dim() == 2) classes = logits.size(1);
  check_rows(logits, targets, classes);
  if (!logits.is_cuda() || !fused_allowed()) return reference::cross_entropy_sum(logits, targets, classes);
  return FusedCrossEntropy::apply(logits.contiguous(), targets.contiguous(), classes);
}

void cross_entropy_in_place(at::Tensor& logits, std::int64_t classes, const at::Tensor& targets,
                            const at::Tensor& seed, at::Tensor& losses) {
  check_rows(logits, targets, classes);
  TORCH_CHECK(logits.is_contiguous() && losses.is_contiguous() && losses.sizes() == targets.sizes() &&
                  seed.numel() == 1 && seed.device() == logits.device(),
              "cross_entropy_in_place: logits ", logits.sizes(), ", losses ", losses.sizes(), ", seed ",
              seed.sizes(), " on ", seed.device(), ": contiguous, one loss a row and one seed are needed");
  if (!logits.is_cuda()) return reference::cross_entropy_in_place(logits, classes, targets, seed, losses);
  run_rows(logits, classes, targets, seed.const_data_ptr<float>(), losses);
}

at::Tensor cross_entropy_losses(const at::Tensor& logits, std::int64_t classes, const at::Tensor& targets) {
  check_rows(logits, targets, classes);
  if (!logits.is_cuda()) return reference::cross_entropy_losses(logits, classes, targets);
  const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  run_rows(logits.contiguous(), classes, targets, nullptr, losses);
  return losses;
}

at::Tensor sum_losses(const at::Tensor& losses) {
  if (!losses.is_cuda()) return losses.sum();
  const at::Tensor source = losses.contiguous();
  const at::Tensor sum = at::empty({}, losses.options());
  cuda_kernels::sum_floats(source.const_data_ptr<float>(), source.numel(), sum.data_ptr<float>(),
                           c10::cuda::getCurrentCUDAStream().stream());
  return sum;
}

at::Tensor reference::cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets,
                                        std::int64_t classes) {
  const at::Tensor all = log_probabilities(logits, classes == -1 ? logits.size(1) : classes);
  return -all.gather(1, targets.unsqueeze(1)).sum();
}

void reference::cross_entropy_in_place(at::Tensor& logits, std::int64_t classes, const at::Tensor& targets,
                                       const at::Tensor& seed, at::Tensor& losses) {
  torch::NoGradGuard no_grad;
  const at::Tensor all = log_probabilities(logits, classes);
  const at::Tensor places = targets.unsqueeze(1);
  losses.copy_(-all.gather(1, places).squeeze(1));
  const at::Tensor picked = at::zeros_like(all).scatter_(1, places, 1);
  logits.narrow(1, 0, classes).copy_((all.exp() - picked) * seed);
  logits.narrow(1, classes, logits.size(1) - classes).zero_();
}

at::Tensor reference::cross_entropy_losses(const at::Tensor& logits, std::int64_t classes,
                                           const at::Tensor& targets) {
  torch::NoGradGuard no_grad;
  return -log_probabilities(logits, classes).gather(1, targets.unsqueeze(1)).squeeze(1);
}

}  // namespace lockstep::ops
