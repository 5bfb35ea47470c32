#include "ops/recompute.hpp"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

namespace lockstep::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Body = std::function<at::Tensor(const at::Tensor&)>;

/// Autograd's own threads know nothing of the forward pass's autocast: it is put up again around the second
/// run.
class AutocastAgain {
 public:
  AutocastAgain(bool enabled, at::ScalarType type)
      : enabled_(enabled),
        was_enabled_(at::autocast::is_autocast_enabled(at::kCUDA)),
        was_type_(at::autocast::get_autocast_dtype(at::kCUDA)),
        was_cached_(at::autocast::is_autocast_cache_enabled()) {
    if (!enabled_) return;
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, type);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastAgain() {
    if (!enabled_) return;
    at::autocast::set_autocast_enabled(at::kCUDA, was_enabled_);
    at::autocast::set_autocast_dtype(at::kCUDA, was_type_);
    at::autocast::set_autocast_cache_enabled(was_cached_);
  }

 private:
  bool enabled_, was_enabled_;
  at::ScalarType was_type_;
  bool was_cached_;
};

struct Held : torch::CustomClassHolder {
  explicit Held(Body held) : body(std::move(held)) {}
  Body body;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::shared_ptr<Body>& body) {
    context->save_for_backward({x});
    context->saved_data["body"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(*body));
    context->saved_data["autocast"] = at::autocast::is_autocast_enabled(at::kCUDA);
    context->saved_data["type"] = static_cast<std::int64_t>(at::autocast::get_autocast_dtype(at::kCUDA));
    return (*body)(x);  // Function::apply has turned gradients off
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const at::AutoGradMode enable(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    const auto capsule = context->saved_data["body"].toCapsule();
    const auto& body = static_cast<Held&>(*capsule).body;
    at::Tensor out;
    {
      const AutocastAgain autocast(context->saved_data["autocast"].toBool(),
                                   static_cast<at::ScalarType>(context->saved_data["type"].toInt()));
      out = body(x);
    }
    out.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recompute(const Body& body, const at::Tensor& x) {
  if (!at::GradMode::is_enabled()) return body(x);
  return Recompute::apply(x, std::make_shared<Body>(body));
}

}  // namespace lockstep::ops
