#include "comm/nccl_communicator.hpp"

#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/check.hpp"

namespace lockstep::comm {

namespace {

ncclDataType_t type_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::float32:
      return ncclFloat32;
    case Scalar::float16:
      return ncclFloat16;
    case Scalar::bfloat16:
      return ncclBfloat16;
    case Scalar::float64:
      return ncclFloat64;
    case Scalar::int64:
      return ncclInt64;
    case Scalar::uint8:
      break;
  }
  return ncclUint8;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const mpi::Communicator& world, const Options& options,
                                   cudaStream_t compute)
    : Communicator(world.rank(), world.size()),
      ranks_(std::make_shared<nccl::Communicator>(
          world, nccl::Options{options.timeout_seconds, options.max_channels, options.sums_alone})),
      compute_(compute),
      timeout_seconds_(options.timeout_seconds) {}

void NcclCommunicator::fork() {
  ready_.record(compute_);
  stream_.wait(ready_);
  forked_ = true;
}

void NcclCommunicator::start_all_reduce(Buffer buffer) {
  check_buffer(buffer, "all_reduce");
  if (buffer.count == 0) return;
  fork();
  ranks_->all_reduce(buffer.data, buffer.count, type_of(buffer.scalar), stream_.raw());
}

void NcclCommunicator::finish() {
  if (!forked_) return;  // recording would draw a stream that never forked into a capture
  done_.record(stream_.raw());
  cuda::wait(compute_, done_);
  forked_ = false;
}

void NcclCommunicator::broadcast(Buffer buffer, int root) {
  check_buffer(buffer, "broadcast");
  check_root(root, size());
  if (buffer.count == 0) return;
  fork();
  ranks_->broadcast(buffer.data, buffer.count, type_of(buffer.scalar), root, stream_.raw());
  finish();
}

void NcclCommunicator::all_gather(Buffer piece, void* all) {
  check_buffer(piece, "all_gather");
  if (piece.count == 0) return;
  fork();
  ranks_->all_gather(piece.data, all, piece.count, type_of(piece.scalar), stream_.raw());
  finish();
}

void NcclCommunicator::reduce_scatter(Buffer all, void* piece) {
  check_buffer(all, "reduce_scatter");
  const auto count = row_count(all, size());
  if (count == 0) return;
  fork();
  ranks_->reduce_scatter(all.data, piece, count, type_of(all.scalar), stream_.raw());
  finish();
}

void NcclCommunicator::barrier() {
  finish();
  done_.record(compute_);
  const Stopwatch watch;
  // Not cudaStreamSynchronize: it would never return from a collective whose peer is gone.
  while (!done_.done()) {
    ranks_->check_health();
    if (watch.seconds() > timeout_seconds_) throw TimeoutError("barrier", 0, rank(), 0, watch.seconds());
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  ranks_->world().barrier();
}

std::shared_ptr<void> NcclCommunicator::allocate(std::int64_t bytes) {
  const auto memory = nccl::allocate(ranks_, bytes);
  memory_ = nccl::name_of(memory.registration);
  return memory.data;
}

std::string NcclCommunicator::describe() const {
  return text("nccl ", nccl::library_version(), ", ", count_of(size(), "rank", "ranks"), memory_ ? ", " : "",
              memory_ ? memory_ : "");
}

}  // namespace lockstep::comm
