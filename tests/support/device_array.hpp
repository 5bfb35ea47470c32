#pragma once

#include <cstdint>
#include <vector>

#include "cuda/memory.hpp"
#include "cuda/stream.hpp"

namespace lockstep::test {

/// A copy of a host array in device memory, for kernels on the legacy default stream.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& host) : count_(host.size()), buffer_(bytes_of(host.size())) {
    upload(host);
  }
  explicit DeviceArray(const T& value) : DeviceArray(std::vector<T>{value}) {}

  T* data() const { return buffer_.template as<T>(); }

  void upload(const std::vector<T>& host) {
    cuda::copy(data(), host.data(), bytes_of(host.size()), nullptr);
    cuda::synchronize(static_cast<cudaStream_t>(nullptr));
  }
  void put(std::size_t index, const T& value) {
    cuda::copy(data() + index, &value, bytes_of(1), nullptr);
    cuda::synchronize(static_cast<cudaStream_t>(nullptr));
  }
  std::vector<T> download() const {
    std::vector<T> host(count_);
    cuda::copy(host.data(), data(), bytes_of(count_), nullptr);
    cuda::synchronize(static_cast<cudaStream_t>(nullptr));
    return host;
  }
  T first() const { return download().front(); }

 private:
  static std::int64_t bytes_of(std::size_t count) { return static_cast<std::int64_t>(count * sizeof(T)); }

  std::size_t count_;
  cuda::DeviceBuffer buffer_;
};

}  // namespace lockstep::test
