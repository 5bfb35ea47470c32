#include "cuda/device.hpp"

#include <cstdio>

#include "base/text.hpp"
#include "cuda/error.hpp"

namespace lockstep::cuda {

namespace {

std::string format_uuid(const cudaUUID_t& uuid) {
  std::string words = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) words += '-';
    words += byte;
  }
  return words;
}

}  // namespace

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

DeviceInfo describe(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), text("cudaGetDeviceProperties(", index, ")"));
  char bus[32] = "";
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, index), text("cudaDeviceGetPCIBusId(", index, ")"));
  DeviceInfo info;
  info.index = index;
  info.name = properties.name;
  info.uuid = format_uuid(properties.uuid);
  info.pci_bus = bus;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  return info;
}

double peak_half_operations(int major, int minor) {
  if (major == 8 && minor == 0) return 312e12;  // A100
  if (major == 9 && minor == 0) return 989e12;  // H100 SXM, H200
  return 0;
}

void set_device(int index) {
  check(cudaSetDevice(index), text("cudaSetDevice(", index, ")"));
}

void synchronize_device() {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace lockstep::cuda
