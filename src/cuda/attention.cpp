#include "cuda/attention.hpp"

#include <cmath>
#include <string>
#include <unordered_map>

#include <cudnn.h>
#include <cudnn_frontend.h>

#include "base/error.hpp"
#include "base/handle.hpp"

namespace lockstep::cuda {

namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : std::int64_t { kQuery = 1, kKey, kValue, kOut, kStatistics, kDOut, kDQuery, kDKey, kDValue };

void check_dnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw ApiError("cuDNN", call, status, cudnnGetErrorString(status));
}

void check_dnn(fe::error_t error, const char* call) {
  if (error.is_good()) return;
  throw ApiError("cuDNN", call, static_cast<long>(error.get_code()), error.get_message());
}

struct CudnnTraits {
  using Type = cudnnHandle_t;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept { cudnnDestroy(raw); }
};

/// [batch, heads, length, head_width] as a view of a row of `parts` such matrices side by side.
Tensor view(fe::graph::Graph& graph, const AttentionShape& s, std::int64_t parts, const char* name, Uid uid) {
  const std::int64_t width = s.heads * s.head_width * parts;
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_uid(uid)
                          .set_dim({s.batch, s.heads, s.length, s.head_width})
                          .set_stride({s.length * width, s.head_width, width, 1}));
}

void describe(Tensor& tensor, const AttentionShape& s, std::int64_t parts, Uid uid) {
  const std::int64_t width = s.heads * s.head_width * parts;
  tensor->set_output(true)
      .set_uid(uid)
      .set_dim({s.batch, s.heads, s.length, s.head_width})
      .set_stride({s.length * width, s.head_width, width, 1});
}

std::shared_ptr<fe::graph::Graph> new_graph(const AttentionShape& s) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(s.number == Number::float16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

float scale_of(const AttentionShape& s) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_width)));
}

std::shared_ptr<fe::graph::Graph> forward_graph(const AttentionShape& s, cudnnHandle_t handle) {
  auto graph = new_graph(s);
  const Tensor query = view(*graph, s, 3, "query", kQuery);
  const Tensor key = view(*graph, s, 3, "key", kKey);
  const Tensor value = view(*graph, s, 3, "value", kValue);
  auto options =
      fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true).set_attn_scale(scale_of(s));
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  auto [out, statistics] = graph->sdpa(query, key, value, options);
  describe(out, s, 1, kOut);
  statistics->set_output(true).set_data_type(fe::DataType_t::FLOAT).set_uid(kStatistics);
  check_dnn(graph->build(handle, {fe::HeurMode_t::A}), "causal attention, forward");
  return graph;
}

std::shared_ptr<fe::graph::Graph> backward_graph(const AttentionShape& s, cudnnHandle_t handle) {
  auto graph = new_graph(s);
  const Tensor query = view(*graph, s, 3, "query", kQuery);
  const Tensor key = view(*graph, s, 3, "key", kKey);
  const Tensor value = view(*graph, s, 3, "value", kValue);
  const Tensor out = view(*graph, s, 1, "out", kOut);
  const Tensor d_out = view(*graph, s, 1, "d_out", kDOut);
  const Tensor statistics = graph->tensor(fe::graph::Tensor_attributes()
                                              .set_name("statistics")
                                              .set_uid(kStatistics)
                                              .set_dim({s.batch, s.heads, s.length, 1})
                                              .set_stride({s.heads * s.length, s.length, 1, 1})
                                              .set_data_type(fe::DataType_t::FLOAT));
  auto options = fe::graph::SDPA_backward_attributes()
                     .set_name("attention_backward")
                     .set_attn_scale(scale_of(s))
                     .set_deterministic_algorithm(true);
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  auto [d_query, d_key, d_value] = graph->sdpa_backward(query, key, value, out, d_out, statistics, options);
  describe(d_query, s, 3, kDQuery);
  describe(d_key, s, 3, kDKey);
  describe(d_value, s, 3, kDValue);
  check_dnn(graph->build(handle, {fe::HeurMode_t::A}), "causal attention, backward");
  return graph;
}

}  // namespace

struct Attention::Plans {
  Handle<CudnnTraits> handle;
  AttentionShape shape;
  std::shared_ptr<fe::graph::Graph> forward_plan, backward_plan;

  fe::graph::Graph& forward() {
    if (!forward_plan) forward_plan = forward_graph(shape, handle.get());
    return *forward_plan;
  }
  fe::graph::Graph& backward() {
    if (!backward_plan) backward_plan = backward_graph(shape, handle.get());
    return *backward_plan;
  }

  /// Where query, key and value begin in a packed matrix.
  void place(std::unordered_map<std::int64_t, void*>& pack, void* qkv, Uid query, Uid key, Uid value) const {
    const std::int64_t part_bytes = shape.heads * shape.head_width * 2;
    auto* const bytes = static_cast<std::byte*>(qkv);
    pack[query] = bytes;
    pack[key] = bytes + part_bytes;
    pack[value] = bytes + 2 * part_bytes;
  }
};

Attention::Attention(const AttentionShape& shape) : plans_(std::make_unique<Plans>()) {
  check_dnn(cudnnCreate(plans_->handle.out()), "cudnnCreate");
  plans_->shape = shape;
}

Attention::~Attention() = default;

void Attention::prepare() {
  plans_->forward();
  plans_->backward();
}

std::int64_t Attention::forward_workspace_bytes() {
  return plans_->forward().get_workspace_size();
}

std::int64_t Attention::backward_workspace_bytes() {
  return plans_->backward().get_workspace_size();
}

void Attention::forward(const void* qkv, void* out, float* statistics, void* workspace, cudaStream_t stream) {
  check_dnn(cudnnSetStream(plans_->handle.get(), stream), "cudnnSetStream");
  std::unordered_map<std::int64_t, void*> pack{{kOut, out}, {kStatistics, statistics}};
  plans_->place(pack, const_cast<void*>(qkv), kQuery, kKey, kValue);
  check_dnn(plans_->forward().execute(plans_->handle.get(), pack, workspace), "causal attention, forward");
}

void Attention::backward(const void* qkv, const void* out, const void* d_out, const float* statistics,
                         void* d_qkv, void* workspace, cudaStream_t stream) {
  check_dnn(cudnnSetStream(plans_->handle.get(), stream), "cudnnSetStream");
  std::unordered_map<std::int64_t, void*> pack{{kOut, const_cast<void*>(out)},
                                               {kDOut, const_cast<void*>(d_out)},
                                               {kStatistics, const_cast<float*>(statistics)}};
  plans_->place(pack, const_cast<void*>(qkv), kQuery, kKey, kValue);
  plans_->place(pack, d_qkv, kDQuery, kDKey, kDValue);
  check_dnn(plans_->backward().execute(plans_->handle.get(), pack, workspace), "causal attention, backward");
}

}  // namespace lockstep::cuda
