#pragma once

#include <cstdint>
#include <string>

namespace lockstep::cuda {

/// Number of GPUs that this process may use; 0 where there is no driver. Never throws.
int device_count() noexcept;

struct DeviceInfo {
  int index = 0;        ///< among the visible ones
  std::string name;     ///< "NVIDIA H200"
  std::string uuid;     ///< "GPU-01234567-89ab-cdef-0123-456789abcdef"
  std::string pci_bus;  ///< "0000:41:00.0"
  int major = 0;        ///< compute capability
  int minor = 0;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

/// Throws ApiError when there is no device `index`. Makes no CUDA context.
DeviceInfo describe(int index);

/// Floating-point operations a second of dense half and bfloat16 matrix products with FP32 accumulation, as
/// the maker states them for devices of this compute capability; 0: not known here.
double peak_half_operations(int major, int minor);

/// Makes `index` the calling thread's device. Every thread that calls CUDA does this once.
void set_device(int index);

/// Waits for all work of the calling thread's device.
void synchronize_device();

}  // namespace lockstep::cuda
