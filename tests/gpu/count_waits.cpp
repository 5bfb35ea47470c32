// Preloaded into a run, counts the CUDA runtime calls that make the host wait for the device, by function,
// and writes "name count" lines to the file that LOCKSTEP_WAITS_FILE names. Waits of other threads than the
// first (the loader's thread waits for its copies there) are counted as "name@thread".
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

struct Counter {
  const char* name;
  std::atomic<long> first_thread{0};
  std::atomic<long> other_threads{0};
};

Counter counters[] = {{"cudaDeviceSynchronize"},
                      {"cudaStreamSynchronize"},
                      {"cudaEventSynchronize"},
                      {"cudaMemcpy"},
                      {"cudaMalloc"},
                      {"cudaFree"},
                      {"cudaMallocHost"},
                      {"cudaHostAlloc"}};

template <class Function>
Function next(const char* name) {
  for (auto& counter : counters) {
    if (std::strcmp(counter.name, name) != 0) continue;
    ++(::syscall(SYS_gettid) == ::getpid() ? counter.first_thread : counter.other_threads);
  }
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

struct AtExit {
  ~AtExit() {
    bool called = false;
    for (const auto& counter : counters) called |= counter.first_thread > 0;
    if (!called) return;  // a helper process that MPI started, which inherited the preload
    const char* const path = std::getenv("LOCKSTEP_WAITS_FILE");
    std::FILE* const file = path != nullptr ? std::fopen(path, "w") : nullptr;
    if (file == nullptr) return;
    for (const auto& counter : counters) {
      std::fprintf(file, "%s %ld\n", counter.name, counter.first_thread.load());
      std::fprintf(file, "%s@thread %ld\n", counter.name, counter.other_threads.load());
    }
    std::fclose(file);
  }
} at_exit;

}  // namespace

extern "C" {
cudaError_t cudaDeviceSynchronize() {
  return next<cudaError_t (*)()>("cudaDeviceSynchronize")();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return next<cudaError_t (*)(cudaStream_t)>("cudaStreamSynchronize")(stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return next<cudaError_t (*)(cudaEvent_t)>("cudaEventSynchronize")(event);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t count, cudaMemcpyKind kind) {
  return next<cudaError_t (*)(void*, const void*, size_t, cudaMemcpyKind)>("cudaMemcpy")(to, from, count,
                                                                                         kind);
}
cudaError_t cudaMalloc(void** data, size_t size) {
  return next<cudaError_t (*)(void**, size_t)>("cudaMalloc")(data, size);
}
cudaError_t cudaFree(void* data) {
  return next<cudaError_t (*)(void*)>("cudaFree")(data);
}
cudaError_t cudaMallocHost(void** data, size_t size) {
  return next<cudaError_t (*)(void**, size_t)>("cudaMallocHost")(data, size);
}
cudaError_t cudaHostAlloc(void** data, size_t size, unsigned int flags) {
  return next<cudaError_t (*)(void**, size_t, unsigned int)>("cudaHostAlloc")(data, size, flags);
}
}
