#include "train/learner.hpp"

#include <torch/torch.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "mpi/job.hpp"
#include "ops/kernel_choice.hpp"
#include "optim/schedule.hpp"
#include "parallel/gradient_reducer.hpp"
#include "precision/autocast.hpp"
#include "precision/stream.hpp"

namespace lockstep::train {

namespace {

nlohmann::json to_json(const precision::StepState& state) {
  return {{"loss_scale", state.loss_scale},           {"growth_tracker", state.growth_tracker},
          {"hysteresis_left", state.hysteresis_left}, {"consecutive_skips", state.consecutive_skips},
          {"applied_steps", state.applied_steps},     {"skipped_steps", state.skipped_steps}};
}

precision::StepState state_from_json(const nlohmann::json& stored) {
  precision::StepState state{};
  state.loss_scale = stored.at("loss_scale").get<float>();
  state.growth_tracker = stored.at("growth_tracker").get<std::int32_t>();
  state.hysteresis_left = stored.at("hysteresis_left").get<std::int32_t>();
  state.consecutive_skips = stored.at("consecutive_skips").get<std::int32_t>();
  state.applied_steps = stored.at("applied_steps").get<std::int64_t>();
  state.skipped_steps = stored.at("skipped_steps").get<std::int64_t>();
  return state;
}

/// Collective. A model that does not fit fails on all ranks, and that is said once.
std::shared_ptr<models::Model> make_model_alike(const config::TrainSettings& settings,
                                                const models::ModelRequest& request,
                                                const mpi::Communicator& world) {
  std::shared_ptr<models::Model> model;
  mpi::agree(world, [&] {
    torch::manual_seed(settings.seed);
    model = models::make_model(request);
  });
  return model;
}

}  // namespace

models::ModelRequest request_for(const config::ModelSettings& settings, const data::DataSet& data) {
  models::ModelRequest request;
  request.settings = settings;
  request.input_shape.assign(data.input_shape().begin(), data.input_shape().end());
  request.classes = data.classes();
  request.tokens = data.tokens();
  return request;
}

Learner::Learner(const config::TrainSettings& settings, const models::ModelRequest& request,
                 std::int64_t total_steps, const Place& place, const mpi::Communicator& world)
    : Learner(make_model_alike(settings, request, world), settings, total_steps, place, world) {}

Learner::Learner(std::shared_ptr<models::Model> model, const config::TrainSettings& settings,
                 std::int64_t total_steps, const Place& place, const mpi::Communicator& world)
    : model_(std::move(model)) {
  precision::set_arithmetic(settings.precision);
  ops::set_kernels(static_cast<ops::Kernels>(settings.ops));
  comm::Options options;
  options.cuda = place.cuda();
  options.max_channels =
      static_cast<int>(std::min<std::int64_t>(settings.reduce.max_channels, 64));  // all it has
  options.sums_alone =
      place.hopper_host && settle_reduction(settings.reduce, place).overlap == config::OverlapMode::off;
  ranks_ = comm::make_communicator(world, options, place.cuda() ? precision::current_stream() : nullptr);
  model_->to(place.device);
  model_->train();
  parameters_ = std::make_unique<precision::FlatParameters>(
      *model_, settings.precision, [this](std::int64_t bytes) { return ranks_->allocate(bytes); });
  scaler_ = std::make_unique<precision::LossScaler>(
      *parameters_, settings.scaler, settings.precision, settings.optimizer.clip_norm,
      optim::learning_rates(settings.optimizer.lr, settings.schedule, total_steps));
  optimizer_ = optim::make_optimizer(*parameters_, settings.optimizer);
  parallel::broadcast_parameters(*parameters_, *ranks_);
}

std::int64_t Learner::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& parameter : parameters_->parameters()) count += parameter.count;
  return count;
}

checkpoint::Snapshot Learner::snapshot() {
  checkpoint::Snapshot snapshot;
  snapshot.flat_size = parameters_->size();
  for (const auto& parameter : parameters_->parameters()) {
    snapshot.layout.push_back({parameter.name, parameter.shape, parameter.begin, parameter.count});
  }
  snapshot.arrays.push_back({"masters", parameters_->masters()});
  for (std::size_t i = 0; i < optimizer_->moments().size(); ++i) {
    snapshot.arrays.push_back({"moment" + std::to_string(i), optimizer_->moments()[i]});
  }
  for (const auto& buffer : model_->named_buffers())
    snapshot.buffers.push_back({buffer.key(), buffer.value()});
  return snapshot;
}

void Learner::check_replicas(std::int64_t step, const mpi::Communicator& world) const {
  std::vector<std::pair<std::string, at::Tensor>> arrays{{"masters", parameters_->masters()}};
  for (const auto& moment : optimizer_->moments())
    arrays.push_back({"moment" + std::to_string(arrays.size() - 1), moment});
  for (const auto& [name, array] : arrays) {
    const at::Tensor host = array.cpu().contiguous();
    const auto hash = hash_bytes(host.data_ptr(), static_cast<std::size_t>(host.nbytes()));
    const auto all = world.all_gather(static_cast<std::int64_t>(hash));
    const auto other = std::find_if(all.begin(), all.end(), [&](std::int64_t h) { return h != all[0]; });
    if (other == all.end()) continue;
    Error error(
        ExitCode::replicas_differ,
        text("step ", step, ": ", name, " of rank ", other - all.begin(), " (hash ",
             hex(static_cast<std::uint64_t>(*other)), ") differ from those of rank 0 (hash ",
             hex(static_cast<std::uint64_t>(all[0])),
             "); a device or its memory may be faulty: go on from the last checkpoint without that node"));
    error.mark_on_all_ranks();
    throw error;
  }
}

nlohmann::json Learner::load(const std::string& folder, const mpi::Communicator& world) {
  torch::NoGradGuard no_grad;
  checkpoint::Snapshot snapshot = this->snapshot();
  checkpoint::load(folder, snapshot, world);
  scaler_->write(state_from_json(snapshot.state.at("scaler")));
  parameters_->refresh_weights();
  return snapshot.state;
}

std::string Learner::save(const std::string& run_folder, std::int64_t step, nlohmann::json state,
                          const std::string& config, std::int64_t keep, const mpi::Communicator& world) {
  torch::NoGradGuard no_grad;
  checkpoint::Snapshot snapshot = this->snapshot();
  snapshot.step = step;
  snapshot.state = std::move(state);
  snapshot.state["scaler"] = to_json(scaler_->read());
  snapshot.config = nlohmann::json::parse(config);
  return checkpoint::save(run_folder, snapshot, world, keep);
}

}  // namespace lockstep::train
