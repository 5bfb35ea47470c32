#include "train/step_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::train {

namespace {

constexpr int kWarmSteps = 3;

}  // namespace

struct StepGraph::Captured {
  at::cuda::CUDAGraph graph;
};

StepGraph::StepGraph(Step& step, const Input& input, config::GraphMode mode, bool cuda,
                     std::int64_t full_count)
    : step_(step), input_(input), mode_(mode), cuda_(cuda), full_count_(full_count) {
  if (mode == config::GraphMode::on && !cuda) {
    throw UsageError("--graph on needs CUDA ranks, this run has CPU ranks; take --graph auto");
  }
}

StepGraph::~StepGraph() = default;

std::string StepGraph::describe() const {
  if (!cuda_) return "off (CPU ranks)";
  if (mode_ == config::GraphMode::off) return "off (--graph off)";
  return text("on (captured after ", kWarmSteps, " steps, replayed for every full batch)");
}

void StepGraph::run() {
  if (!cuda_ || mode_ == config::GraphMode::off || input_.global_count() != full_count_) return step_.run();
  if (warm_steps_ < kWarmSteps) {
    ++warm_steps_;
    return step_.run();
  }
  if (!captured_) capture();
  captured_->graph.replay();
}

void StepGraph::capture() {
  // The graph's memory is its own; what the first steps used would stay beside it, unused.
  c10::cuda::CUDACachingAllocator::emptyCache();
  captured_ = std::make_unique<Captured>();
  // Thread-local: the loader's thread may wait for its copies meanwhile.
  captured_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    step_.run();
  } catch (...) {  // such as too little memory: the stream must not stay in capture
    try {
      captured_->graph.capture_end();
    } catch (const c10::Error&) {
    }
    captured_.reset();
    throw;
  }
  captured_->graph.capture_end();
}

}  // namespace lockstep::train
