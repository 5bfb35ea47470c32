#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "base/handle.hpp"

namespace lockstep::cuda {

struct DeviceMemoryTraits {
  using Type = void*;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept;
};

struct PinnedMemoryTraits {
  using Type = void*;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept;
};

/// `bytes` of device memory of the calling thread's device, not cleared. Allocation and release wait for the
/// device: not inside a step. Throws ApiError(unavailable) when there is not enough.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::int64_t bytes);
  void* data() const { return handle_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data());
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  Handle<DeviceMemoryTraits> handle_;
  std::int64_t bytes_ = 0;
};

/// `bytes` of host memory that the device copies from and to without a detour, not cleared.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::int64_t bytes);
  void* data() const { return handle_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data());
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  Handle<PinnedMemoryTraits> handle_;
  std::int64_t bytes_ = 0;
};

/// Copies between any two of host, pinned and device memory, in the order of `stream`; the host waits only
/// where one side is pageable memory.
void copy(void* to, const void* from, std::int64_t bytes, cudaStream_t stream);
/// Sets every byte to zero, in the order of `stream`.
void clear(void* data, std::int64_t bytes, cudaStream_t stream);

}  // namespace lockstep::cuda
