#include "ops/embedding.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "ops/element.hpp"
#include "ops/gradient_range.hpp"
#include "ops/kernel_choice.hpp"
#include "ops/kernels.hpp"

namespace lockstep::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

cuda_kernels::EmbeddingShape shape_of(const at::Tensor& tokens, const at::Tensor& token_weight) {
  return {tokens.size(0), tokens.size(1), token_weight.size(1), token_weight.size(0)};
}

/// The kernels add: a range that autograd gets begins at zero.
void clear_unless_direct(const GradientRange& range) {
  if (!range.direct()) range.target().zero_();
}

void add_token_gradient(const at::Tensor& tokens, const at::Tensor& d_out, const at::Tensor& target) {
  const auto shape = shape_of(tokens, target);
  const auto numbers = d_out.options().dtype(at::kInt);
  const at::Tensor scratch = at::empty({4, tokens.numel()}, numbers);
  const at::Tensor work =
      at::empty({static_cast<std::int64_t>(cuda_kernels::sort_bytes(shape))}, numbers.dtype(at::kByte));
  const at::Tensor partials = at::empty({cuda_kernels::token_partials(shape)}, numbers.dtype(at::kFloat));
  auto* const first = scratch.data_ptr<std::int32_t>();
  const auto part = [&](std::int64_t i) { return first + i * tokens.numel(); };
  const auto part_of_keys = [&](std::int64_t i) { return reinterpret_cast<std::uint32_t*>(part(i)); };
  const cuda_kernels::SortedTokens sorted{part_of_keys(0), part(1), part_of_keys(2), part(3),
                                          work.data_ptr()};
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  cuda_kernels::sort_tokens(shape, tokens.const_data_ptr<std::int64_t>(), sorted, stream);
  cuda_kernels::token_gradient(shape, element_of(d_out), d_out.const_data_ptr(), sorted,
                               partials.data_ptr<float>(), target.data_ptr(), stream);
}

class FusedEmbedding : public torch::autograd::Function<FusedEmbedding> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& token_weight, const at::Tensor& position_weight) {
    const auto shape = shape_of(tokens, token_weight);
    const at::Tensor out = at::empty({tokens.numel(), shape.columns}, token_weight.options());
    cuda_kernels::embedding_forward(shape, element_of(token_weight), tokens.const_data_ptr<std::int64_t>(),
                                    token_weight.const_data_ptr(), position_weight.const_data_ptr(),
                                    out.data_ptr(), c10::cuda::getCurrentCUDAStream().stream());
    context->save_for_backward({tokens, token_weight, position_weight});
    return out;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& tokens = saved[0];
    const at::Tensor d_out = gradients[0].contiguous();
    tensor_list results(3);
    const GradientRange position(saved[2]);
    if (position.needed()) {
      clear_unless_direct(position);
      cuda_kernels::position_gradient(shape_of(tokens, saved[1]), element_of(d_out), d_out.const_data_ptr(),
                                      position.target().data_ptr(),
                                      c10::cuda::getCurrentCUDAStream().stream());
      results[2] = position.result();
    }
    const GradientRange token(saved[1]);
    if (token.needed()) {
      clear_unless_direct(token);
      if (tokens.numel() > 0) add_token_gradient(tokens, d_out, token.target());
      results[1] = token.result();
    }
    return results;
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& token_weight,
                     const at::Tensor& position_weight) {
  TORCH_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong, "embedding: tokens are ",
              tokens.scalar_type(), " ", tokens.sizes(), ", not int64 [batch, length]");
  TORCH_CHECK(token_weight.dim() == 2 && position_weight.dim() == 2 &&
                  token_weight.size(1) == position_weight.size(1) &&
                  position_weight.size(0) >= tokens.size(1) &&
                  token_weight.scalar_type() == position_weight.scalar_type(),
              "embedding: token weight ", token_weight.scalar_type(), " ", token_weight.sizes(),
              " and position weight ", position_weight.scalar_type(), " ", position_weight.sizes(),
              " do not fit tokens ", tokens.sizes());
  if (!tokens.is_cuda() || !fused_allowed())
    return reference::embedding(tokens, token_weight, position_weight);
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  TORCH_CHECK(tokens.numel() <= kMost && token_weight.size(0) < kMost, "embedding: ", tokens.numel(),
              " tokens or a vocabulary of ", token_weight.size(0), " are more than ", kMost);
  return FusedEmbedding::apply(tokens.contiguous(), token_weight.contiguous(), position_weight.contiguous());
}

at::Tensor reference::embedding(const at::Tensor& tokens, const at::Tensor& token_weight,
                                const at::Tensor& position_weight) {
  const auto type = token_weight.scalar_type();
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor words = token_weight.index_select(0, tokens.flatten()).to(wide);
  const at::Tensor places = position_weight.narrow(0, 0, tokens.size(1)).to(wide);
  return (words + places.repeat({tokens.size(0), 1})).to(type);
}

}  // namespace lockstep::ops
