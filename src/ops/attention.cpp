#include "ops/attention.hpp"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <algorithm>

#include "ops/fused_library.hpp"
#include "ops/kernel_choice.hpp"

namespace lockstep::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// The deterministic backward pass holds all scores at once; sequences beyond this are done in parts.
constexpr std::int64_t kScoresBytes = std::int64_t{2} << 30;

at::Tensor workspace(std::int64_t bytes, const at::Tensor& like) {
  return at::empty({bytes}, like.options().dtype(at::kByte));
}

cuda::AttentionShape shape_of(const at::Tensor& qkv, std::int64_t sequences, std::int64_t heads) {
  return {sequences, qkv.size(0) / sequences, heads, qkv.size(1) / 3 / heads, number_of(qkv)};
}

std::int64_t sequences_at_once(const cuda::AttentionShape& shape) {
  return std::clamp<std::int64_t>(kScoresBytes / (2 * shape.heads * shape.length * shape.length), 1,
                                  shape.batch);
}

class FusedAttention : public torch::autograd::Function<FusedAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, std::int64_t sequences,
                            std::int64_t heads) {
    const auto shape = shape_of(qkv, sequences, heads);
    cuda::Attention& plan = attention_plan(shape);
    const at::Tensor out = at::empty({qkv.size(0), qkv.size(1) / 3}, qkv.options());
    const at::Tensor statistics =
        at::empty({sequences, heads, shape.length}, qkv.options().dtype(at::kFloat));
    const at::Tensor space = workspace(plan.forward_workspace_bytes(), qkv);
    plan.forward(qkv.data_ptr(), out.data_ptr(), statistics.data_ptr<float>(), space.data_ptr(),
                 c10::cuda::getCurrentCUDAStream().stream());
    context->save_for_backward({qkv, out, statistics});
    context->saved_data["sequences"] = sequences;
    context->saved_data["heads"] = heads;
    return out;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor d_out = gradients[0].contiguous();
    const std::int64_t sequences = context->saved_data["sequences"].toInt();
    auto shape = shape_of(saved[0], sequences, context->saved_data["heads"].toInt());
    const at::Tensor d_qkv = at::empty_like(saved[0]);
    const std::int64_t most = sequences_at_once(shape);
    for (std::int64_t first = 0; first < sequences; first += most) {
      shape.batch = std::min(most, sequences - first);
      cuda::Attention& plan = attention_plan(shape);
      const at::Tensor space = workspace(plan.backward_workspace_bytes(), d_out);
      const auto part = [&](const at::Tensor& all) {
        return all.narrow(0, first * shape.length, shape.batch * shape.length).data_ptr();
      };
      plan.backward(part(saved[0]), part(saved[1]), part(d_out),
                    saved[2].narrow(0, first, shape.batch).const_data_ptr<float>(), part(d_qkv),
                    space.data_ptr(), c10::cuda::getCurrentCUDAStream().stream());
    }
    return {d_qkv, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& qkv, std::int64_t sequences, std::int64_t heads) {
  TORCH_CHECK(qkv.dim() == 2 && qkv.size(1) % (3 * heads) == 0 &&
                  (sequences == 0 ? qkv.size(0) == 0 : qkv.size(0) % sequences == 0),
              "attention: qkv ", qkv.sizes(), " does not hold ", sequences, " sequences of ", heads,
              " heads");
  if (sequences == 0) return reference::attention(qkv, sequences, heads);
  const auto supported = [&] { return attention_supported(shape_of(qkv, sequences, heads)); };
  if (!use_fused(qkv, supported, "this attention, in cuDNN"))
    return reference::attention(qkv, sequences, heads);
  return FusedAttention::apply(qkv.contiguous(), sequences, heads);
}

at::Tensor attention_after(const at::Tensor& qkv, const at::Tensor& kept, std::int64_t before) {
  const std::int64_t tokens = qkv.size(0), heads = kept.size(1), all = before + tokens;
  TORCH_CHECK(
      qkv.dim() == 2 && kept.dim() == 4 && qkv.size(1) == 3 * heads * kept.size(3) && all <= kept.size(2),
      "attention_after: qkv ", qkv.sizes(), " after ", before, " tokens does not fit keys and values ",
      kept.sizes());
  const at::Tensor parts =
      qkv.view({tokens, 3, heads, kept.size(3)}).permute({1, 2, 0, 3});  // [3, heads, t, d]
  kept.narrow(2, before, tokens).copy_(parts.narrow(0, 1, 2));
  const at::Tensor seen = kept.narrow(2, 0, all).unsqueeze(1);
  const at::Tensor mask = at::ones({tokens, all}, qkv.options().dtype(at::kBool)).tril(before);
  return at::scaled_dot_product_attention(parts[0].unsqueeze(0), seen[0], seen[1], mask)
      .squeeze(0)
      .transpose(0, 1)
      .reshape({tokens, qkv.size(1) / 3});
}

at::Tensor reference::attention(const at::Tensor& qkv, std::int64_t sequences, std::int64_t heads) {
  const std::int64_t width = qkv.size(1) / 3;
  if (sequences == 0) return qkv.narrow(1, 0, width);
  const std::int64_t length = qkv.size(0) / sequences;
  const auto parts =
      qkv.view({sequences, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor out = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
  return out.transpose(1, 2).reshape({sequences * length, width});
}

}  // namespace lockstep::ops
