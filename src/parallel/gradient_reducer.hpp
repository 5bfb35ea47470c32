#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "config/settings.hpp"
#include "parallel/buckets.hpp"
#include "precision/flat_parameters.hpp"

namespace lockstep::parallel {

/// Sums the gradients of all ranks, while the backward pass still runs or, without overlap, after it.
///
/// A hook on every parameter says when its gradient is complete. A bucket whose parameters are all ready is
/// sent, but always in the order of the layout, which is the same on every rank. Nothing is copied: a bucket
/// is a range of the gradient array itself. Collective, once a step: arm(true), one backward pass, finish().
class GradientReducer {
 public:
  /// `loss`: reduced before the first bucket. Both references must outlive the reducer, and the reducer the
  /// model's use.
  GradientReducer(precision::FlatParameters& parameters, comm::Communicator& ranks,
                  const config::ReduceSettings& settings, comm::Buffer loss);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Before each backward pass of a step; `last` says that this one completes the gradients.
  void arm(bool last);

  /// After the last one: what follows on the compute stream (CPU ranks: in this thread) sees the sums.
  /// Throws Error(internal) with the name of a parameter that got no gradient, or two.
  void finish();

  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  class Hook;
  void mark_ready(std::size_t parameter);
  void send_ready_buckets();

  precision::FlatParameters& parameters_;
  comm::Communicator& ranks_;
  bool overlap_;
  comm::Buffer loss_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // by parameter
  std::vector<std::size_t> pending_;    // parameters that a bucket still waits for
  std::vector<int> ready_;              // how often a parameter became ready since arm()
  std::size_t next_ = 0;                // bucket to send next
  bool last_ = false;
  bool loss_sent_ = false;
  std::shared_ptr<bool> alive_;  // hooks may outlive the reducer, inside the model's graph
  std::vector<std::shared_ptr<void>> accumulators_;  // keep the hooked autograd nodes
};

/// Rank 0's masters on every rank, and the weights that follow from them. Collective.
void broadcast_parameters(precision::FlatParameters& parameters, comm::Communicator& ranks);

}  // namespace lockstep::parallel
