#include "parallel/gradient_reducer.hpp"

#include <torch/torch.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::parallel {

/// Called by autograd after a parameter's gradient was added to its view of the flat array. The only code
/// here that depends on autograd's inner names.
class GradientReducer::Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(GradientReducer& reducer, std::size_t parameter)
      : reducer_(reducer), alive_(reducer.alive_), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    if (*alive_) reducer_.mark_ready(parameter_);
    return outputs;
  }

 private:
  GradientReducer& reducer_;
  std::shared_ptr<bool> alive_;
  std::size_t parameter_;
};

GradientReducer::GradientReducer(precision::FlatParameters& parameters, comm::Communicator& ranks,
                                 const config::ReduceSettings& settings, comm::Buffer loss)
    : parameters_(parameters),
      ranks_(ranks),
      overlap_(settings.overlap != config::OverlapMode::off),
      loss_(loss),
      alive_(std::make_shared<bool>(true)) {
  std::vector<Place> places;
  for (const auto& parameter : parameters.parameters()) places.push_back({parameter.begin, parameter.count});
  buckets_ = bucket_layout(places, parameters.low_size(), settings);
  bucket_of_.resize(places.size());
  ready_.resize(places.size());
  pending_.resize(buckets_.size());
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (const auto parameter : buckets_[bucket].parameters) bucket_of_[parameter] = bucket;
  }
  for (std::size_t index = 0; index < places.size(); ++index) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters.parameters()[index].variable);
    accumulator->add_post_hook(std::make_unique<Hook>(*this, index));
    accumulators_.push_back(std::move(accumulator));
  }
}

GradientReducer::~GradientReducer() {
  *alive_ = false;
}

void GradientReducer::arm(bool last) {
  last_ = last;
  loss_sent_ = false;
  next_ = 0;
  ready_.assign(ready_.size(), 0);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    pending_[bucket] = buckets_[bucket].parameters.size();
}

void GradientReducer::mark_ready(std::size_t parameter) {
  if (++ready_[parameter] > 1) return;  // finish() reports it
  --pending_[bucket_of_[parameter]];
  if (last_ && overlap_) send_ready_buckets();
}

void GradientReducer::send_ready_buckets() {
  if (!loss_sent_) {
    ranks_.start_all_reduce(loss_);
    loss_sent_ = true;
  }
  for (; next_ < buckets_.size() && pending_[next_] == 0; ++next_) {
    ranks_.start_all_reduce(parameters_.gradient_buffer(buckets_[next_].range));
  }
}

void GradientReducer::finish() {
  for (std::size_t parameter = 0; parameter < ready_.size(); ++parameter) {
    if (ready_[parameter] == 1) continue;
    const std::string& name = parameters_.parameters()[parameter].name;
    throw Error(ExitCode::internal,
                ready_[parameter] == 0
                    ? text("parameter ", name, " got no gradient: every parameter must take part in the loss")
                    : text("parameter ", name, " got its gradient ", ready_[parameter],
                           " times in one backward pass"));
  }
  send_ready_buckets();
  ranks_.finish();
  parameters_.store_gradients();
}

void broadcast_parameters(precision::FlatParameters& parameters, comm::Communicator& ranks) {
  ranks.broadcast({parameters.masters().data_ptr<float>(), parameters.size(), comm::Scalar::float32}, 0);
  parameters.refresh_weights();
}

}  // namespace lockstep::parallel
