// plant_waits STEPS FUNCTION [thread]: a stand-in for a run, to see count_waits count. Allocates once, as a
// run does, and then calls FUNCTION (none: nothing) once a step, on another thread if asked. Needs no GPU:
// without one the calls fail, and are calls all the same.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>

int main(int count, char** words) {
  char memory[2][1] = {};
  void* data = nullptr;
  const std::map<std::string, std::function<void()>> functions{
      {"none", [] {}},
      {"cudaDeviceSynchronize", [] { cudaDeviceSynchronize(); }},
      {"cudaStreamSynchronize", [] { cudaStreamSynchronize(nullptr); }},
      {"cudaEventSynchronize", [] { cudaEventSynchronize(nullptr); }},
      {"cudaMemcpy", [&] { cudaMemcpy(memory[0], memory[1], 1, cudaMemcpyHostToHost); }},
      {"cudaMalloc", [&] { cudaMalloc(&data, 1); }},
      {"cudaFree", [] { cudaFree(nullptr); }},
      {"cudaMallocHost", [&] { cudaMallocHost(&data, 1); }},
      {"cudaHostAlloc", [&] { cudaHostAlloc(&data, 1, 0); }}};
  const auto found = count < 3 ? functions.end() : functions.find(words[2]);
  if (found == functions.end()) {
    std::fprintf(stderr, "plant_waits STEPS FUNCTION [thread]\n");
    return 64;
  }
  cudaMalloc(&data, 1);
  const auto run = [&] {
    for (int step = 0; step < std::atoi(words[1]); ++step) found->second();
  };
  if (count > 3) {
    std::thread(run).join();
  } else {
    run();
  }
}
