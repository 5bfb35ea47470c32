#include "nccl/memory.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"

namespace lockstep::nccl {

namespace {

/// Owns one allocation and what NCCL knows of it.
class Block {
 public:
  Block(std::shared_ptr<Communicator> communicator, std::size_t bytes)
      : communicator_(std::move(communicator)), bytes_(bytes) {
    const ncclResult_t status = ncclMemAlloc(&data_, bytes_);
    if (status != ncclSuccess) {
      throw ApiError("NCCL", text("ncclMemAlloc(", format_bytes(static_cast<std::int64_t>(bytes_)), ")"),
                     status, ncclGetErrorString(status), ExitCode::unavailable);
    }
  }

  ~Block() {
    // A communicator that was aborted has forgotten its registrations.
    if (communicator_->usable()) {
      try {
        if (window_)
          communicator_->complete(ncclCommWindowDeregister(communicator_->raw(), window_),
                                  "ncclCommWindowDeregister");
        if (handle_)
          communicator_->complete(ncclCommDeregister(communicator_->raw(), handle_), "ncclCommDeregister");
      } catch (const std::exception&) {
        // The communicator is marked as failed and will be aborted; there is nobody to tell here.
      }
    }
    ncclMemFree(data_);
  }

  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void* data() const { return data_; }

  /// Collective.
  Registration register_with_nccl() {
    communicator_->complete(
        ncclCommWindowRegister(communicator_->raw(), data_, bytes_, &window_, NCCL_WIN_COLL_SYMMETRIC),
        "ncclCommWindowRegister (NCCL_WIN_ENABLE=0 does without)", static_cast<std::int64_t>(bytes_));
    if (window_ != nullptr) return is_on_device(window_) ? Registration::symmetric : Registration::buffer;
    communicator_->complete(ncclCommRegister(communicator_->raw(), data_, bytes_, &handle_),
                            "ncclCommRegister", static_cast<std::int64_t>(bytes_));
    return handle_ != nullptr ? Registration::buffer : Registration::none;
  }

 private:
  /// Where the links do not allow symmetric memory NCCL 2.28 hands out a window all the same: then it is a
  /// host pointer to a plain registration, while a true window lives in device memory. No call tells.
  static bool is_on_device(const void* window) {
    cudaPointerAttributes attributes{};
    cuda::check(cudaPointerGetAttributes(&attributes, window), "cudaPointerGetAttributes");
    return attributes.type == cudaMemoryTypeDevice;
  }

  std::shared_ptr<Communicator> communicator_;
  std::size_t bytes_;
  void* data_ = nullptr;
  ncclWindow_t window_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace

const char* name_of(Registration registration) {
  switch (registration) {
    case Registration::symmetric:
      return "symmetric memory";
    case Registration::buffer:
      return "registered memory";
    case Registration::none:
      break;
  }
  return "plain memory";
}

Memory allocate(const std::shared_ptr<Communicator>& communicator, std::int64_t bytes) {
  const auto& world = communicator->world();
  const auto smallest = world.min(bytes);
  const auto largest = world.max(bytes);
  if (smallest != largest || bytes < 0) {
    throw UsageError(text("all ranks allocate the same number of bytes, but one asks for ", smallest,
                          " and one for ", largest));
  }
  constexpr std::int64_t kAlignment = NCCL_WIN_REQUIRED_ALIGNMENT;
  const std::int64_t rounded = std::max<std::int64_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  const auto block = std::make_shared<Block>(communicator, static_cast<std::size_t>(rounded));
  cuda::check(cudaMemset(block->data(), 0, static_cast<std::size_t>(rounded)), "cudaMemset");
  cuda::synchronize_device();
  const Registration registration = block->register_with_nccl();
  return {std::shared_ptr<void>(block, block->data()), registration};
}

}  // namespace lockstep::nccl
