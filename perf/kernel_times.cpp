// Time of every kernel of a program, summed by name, without changing the program:
//   CUDA_INJECTION64_PATH=.../libkernel_times.so KERNEL_TIMES=out.json KERNEL_TIMES_STEPS=20 program ...
// CUDA loads this library at its start; CUPTI reports each kernel and copy, also those inside a graph. At the
// end of the process the table is written, in microseconds: total, count, and share; `steps` divides the
// totals. A process that ran no kernel writes nothing: MPI's daemon looks at the GPU too.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <cupti.h>

namespace {

struct Row {
  double microseconds = 0;
  long count = 0;
};

struct Table {
  std::mutex mutex;
  std::map<std::string, Row> rows;
  unsigned long long first = ~0ull, last = 0;
};

Table& table() {
  static auto* const the_table = new Table;  // outlives every destructor of the program
  return *the_table;
}

void add(const char* name, unsigned long long start, unsigned long long end) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  Row& row = all.rows[name];
  row.microseconds += static_cast<double>(end - start) * 1e-3;
  ++row.count;
  all.first = std::min(all.first, start);
  all.last = std::max(all.last, end);
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *size = 8 << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      add(kernel->name, kernel->start, kernel->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      add("(copy)", copy->start, copy->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* set = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      add("(set)", set->start, set->end);
    }
  }
  std::free(buffer);
}

void write_table() {
  cuptiActivityFlushAll(1);
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  if (all.rows.empty()) return;
  const char* const path = std::getenv("KERNEL_TIMES");
  const char* const steps_text = std::getenv("KERNEL_TIMES_STEPS");
  const double steps = steps_text != nullptr ? std::atof(steps_text) : 1;
  std::FILE* const out = path != nullptr ? std::fopen(path, "w") : stderr;
  if (out == nullptr) return;
  std::vector<std::pair<std::string, Row>> rows(all.rows.begin(), all.rows.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.microseconds > b.second.microseconds; });
  double total = 0;
  for (const auto& [name, row] : rows) total += row.microseconds;
  std::fprintf(out, "{\"steps\": %g, \"busy_us\": %.1f, \"kernels\": [", steps, total / steps);
  const char* comma = "\n";
  for (const auto& [name, row] : rows) {
    std::fprintf(out, "%s{\"us\": %.1f, \"count\": %.2f, \"share\": %.4f, \"name\": \"%s\"}", comma,
                 row.microseconds / steps, static_cast<double>(row.count) / steps, row.microseconds / total,
                 name.c_str());
    comma = ",\n";
  }
  std::fprintf(out, "]}\n");
  if (out != stderr) std::fclose(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
  std::atexit(write_table);
  return 1;
}
