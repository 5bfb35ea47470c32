#include "ops/gradient_range.hpp"

#include <torch/torch.h>

#include "support/catch.hpp"

using namespace lockstep;

namespace {

/// y = x * weight, elementwise, with the weight's gradient written as a fused op writes it.
class Product : public torch::autograd::Function<Product> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const ops::GradientRange range(saved[1]);
    if (range.needed()) {
      at::Tensor target = range.target();
      if (!range.direct()) target.zero_();
      target.add_((gradients[0] * saved[0]).to(target.scalar_type()));
    }
    return {gradients[0] * saved[1], range.needed() ? range.result() : at::Tensor()};
  }
};

class Count : public torch::autograd::FunctionPostHook {
 public:
  explicit Count(int& count) : count_(count) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ++count_;
    return outputs;
  }

 private:
  int& count_;
};

const at::Tensor kX = torch::tensor({1.0f, 2.0f, 3.0f});

}  // namespace

TEST_CASE("a gradient that is there is added to in place, and the parameter's post hook still runs once") {
  at::Tensor weight = torch::ones({3}).requires_grad_();
  const at::Tensor flat = torch::full({5}, 10.0f);
  weight.mutable_grad() = flat.narrow(0, 1, 3);
  int ready = 0;
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  accumulator->add_post_hook(std::make_unique<Count>(ready));
  Product::apply(kX, weight).sum().backward();
  CHECK(ready == 1);
  CHECK(flat.equal(torch::tensor({10.0f, 11.0f, 12.0f, 13.0f, 10.0f})));
  CHECK(weight.grad().data_ptr() == flat.narrow(0, 1, 3).data_ptr());

  // A tied weight: both uses add, the hook waits for both.
  (Product::apply(kX, weight) + Product::apply(kX, weight)).sum().backward();
  CHECK(ready == 2);
  CHECK(flat.equal(torch::tensor({10.0f, 13.0f, 16.0f, 19.0f, 10.0f})));

  // One use by a fused op and one by plain autograd.
  (Product::apply(kX, weight) + kX * weight).sum().backward();
  CHECK(ready == 3);
  CHECK(weight.grad().equal(torch::tensor({15.0f, 20.0f, 25.0f})));
  CHECK(weight.grad().data_ptr() == flat.narrow(0, 1, 3).data_ptr());
}

TEST_CASE("without a usable gradient autograd gets a tensor and adds it as usual") {
  at::Tensor weight = torch::ones({3}).requires_grad_();
  Product::apply(kX, weight).sum().backward();
  CHECK(weight.grad().equal(kX));

  weight.mutable_grad() = torch::zeros({6}).slice(0, 0, 6, 2);  // strided
  CHECK_FALSE(ops::GradientRange(weight).direct());
  Product::apply(kX, weight).sum().backward();
  CHECK(weight.grad().equal(kX));

  const at::Tensor leaf = torch::ones({3}).requires_grad_();  // what a cast weight is: no leaf
  Product::apply(kX, leaf * 2).sum().backward();
  CHECK(leaf.grad().equal(kX * 2));

  const at::Tensor frozen = torch::ones({3});
  CHECK_FALSE(ops::GradientRange(frozen).needed());
  CHECK_FALSE(ops::GradientRange(at::Tensor()).needed());
}
