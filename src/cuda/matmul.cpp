#include "cuda/matmul.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include <cublasLt.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"

namespace lockstep::cuda {

namespace {

constexpr std::int64_t kWorkspaceBytes = 64 << 20;
constexpr int kCandidates = 16;
constexpr int kTimedRuns = 8;
constexpr int kRounds = 2;

void check_blas(cublasStatus_t status, const std::string& call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw ApiError("cuBLASLt", call, status, cublasLtGetStatusName(status));
}

struct MatmulDescTraits {
  using Type = cublasLtMatmulDesc_t;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept { cublasLtMatmulDescDestroy(raw); }
};
struct LayoutTraits {
  using Type = cublasLtMatrixLayout_t;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept { cublasLtMatrixLayoutDestroy(raw); }
};
struct PreferenceTraits {
  using Type = cublasLtMatmulPreference_t;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept { cublasLtMatmulPreferenceDestroy(raw); }
};

cudaDataType_t data_type(Number number) {
  return number == Number::float16 ? CUDA_R_16F : CUDA_R_16BF;
}

cublasLtEpilogue_t library_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::bias_gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::gelu_slope_sums:
      return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    case Epilogue::gelu_slope:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::left_sums:
      return CUBLASLT_EPILOGUE_BGRADB;  // the library's B, see below
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

std::string describe(const MatmulShape& shape) {
  return text("cublasLtMatmul of [", shape.rows, ", ", shape.inner, "] x [", shape.inner, ", ", shape.columns,
              "]");
}

}  // namespace

struct Matmul::Library {
  cublasLtHandle_t handle = nullptr;
  Library() { check_blas(cublasLtCreate(&handle), "cublasLtCreate"); }
  ~Library() { cublasLtDestroy(handle); }
};

/// cuBLASLt stores by columns: our row-major result is its transposed one, so its A is our right matrix and
/// its B our left one.
struct Matmul::Plan {
  Handle<MatmulDescTraits> desc;
  Handle<LayoutTraits> right, left, result;
  ChosenAlgorithm chosen;
  bool has_run = false;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_blas(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
  }

  explicit Plan(const MatmulShape& shape) {
    check_blas(cublasLtMatmulDescCreate(desc.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, shape.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, shape.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(shape.epilogue));
    if (shape.epilogue == Epilogue::bias_gelu || shape.epilogue == Epilogue::gelu_slope_sums ||
        shape.epilogue == Epilogue::gelu_slope)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.columns);
    const auto make = [&](Handle<LayoutTraits>& layout, std::int64_t rows, std::int64_t columns,
                          bool transposed) {
      if (transposed) std::swap(rows, columns);
      check_blas(
          cublasLtMatrixLayoutCreate(layout.out(), data_type(shape.number), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
    };
    make(right, shape.columns, shape.inner, shape.right_transposed);
    make(left, shape.inner, shape.rows, shape.left_transposed);
    make(result, shape.columns, shape.rows, false);
  }

  void point_at(const MatmulShape& shape, const MatmulOperands& operands) {
    if (shape.epilogue == Epilogue::none) return;
    if (operands.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (operands.auxiliary != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.auxiliary);
  }

  cublasStatus_t launch(cublasLtHandle_t handle, const MatmulShape& shape, const MatmulOperands& operands,
                        void* to, const Algorithm& algorithm, void* workspace, cudaStream_t stream) const {
    const float alpha = 1;
    const float beta = shape.adds ? 1 : 0;
    cublasLtMatmulAlgo_t algo;
    static_assert(sizeof algo == sizeof algorithm);
    std::memcpy(&algo, &algorithm, sizeof algo);
    const void* const added = shape.adds && operands.added != nullptr ? operands.added : to;
    return cublasLtMatmul(handle, desc.get(), &alpha, operands.right, right.get(), operands.left, left.get(),
                          &beta, added, result.get(), to, result.get(), &algo, workspace, kWorkspaceBytes,
                          stream);
  }
};

Matmul::Matmul(const DeviceMemory& memory)
    : memory_(memory), library_(std::make_unique<Library>()), workspace_(memory(kWorkspaceBytes)) {}

Matmul::~Matmul() = default;

namespace {

/// What the library offers for a plan, its own favourite first.
template <class Plan>
std::vector<Algorithm> candidates(cublasLtHandle_t handle, const Plan& plan, const std::string& what) {
  Handle<PreferenceTraits> preference;
  check_blas(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
  // Partial sums of a split product stay in float and are added in a fixed order.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int count = 0;
  check_blas(cublasLtMatmulAlgoGetHeuristic(handle, plan.desc.get(), plan.right.get(), plan.left.get(),
                                            plan.result.get(), plan.result.get(), preference.get(),
                                            kCandidates, found, &count),
             what);
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    algorithms.emplace_back();
    std::memcpy(&algorithms.back(), &found[i].algo, sizeof found[i].algo);
  }
  if (algorithms.empty()) throw ApiError("cuBLASLt", what, CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm");
  return algorithms;
}

struct TimedEventTraits {
  using Type = cudaEvent_t;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept { cudaEventDestroy(raw); }
};

/// Seconds of one call of `body` among many in a row, as in training, where the card's power sets its clock;
/// negative when it fails.
template <class Body>
double shortest_seconds(Body body, cudaStream_t stream) {
  Handle<TimedEventTraits> begin, end;
  check(cudaEventCreate(begin.out()), "cudaEventCreate");
  check(cudaEventCreate(end.out()), "cudaEventCreate");
  if (body() != CUBLAS_STATUS_SUCCESS) return -1;  // the first run also loads the kernel
  float shortest = std::numeric_limits<float>::max();
  for (int round = 0; round < kRounds; ++round) {
    check(cudaEventRecord(begin.get(), stream), "cudaEventRecord");
    for (int run = 0; run < kTimedRuns; ++run) {
      if (body() != CUBLAS_STATUS_SUCCESS) return -1;
    }
    check(cudaEventRecord(end.get(), stream), "cudaEventRecord");
    check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    shortest = std::min(shortest, milliseconds / kTimedRuns);
  }
  return shortest * 1e-3;
}

}  // namespace

Matmul::Plan& Matmul::plan(const MatmulShape& shape, const MatmulOperands& operands, cudaStream_t stream) {
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return *found->second;
  auto plan = std::make_unique<Plan>(shape);
  plan->point_at(shape, operands);
  const auto algorithms = candidates(library_->handle, *plan, describe(shape));
  plan->chosen.algorithm = algorithms.front();
  if (!frozen_ && !is_capturing(stream)) {
    // Adding into the result again and again would spoil it, so such a product is timed into memory of its
    // own.
    const bool in_place = shape.adds && (operands.added == nullptr || operands.added == operands.result);
    const auto scratch = in_place ? memory_(shape.rows * shape.columns * 2) : nullptr;
    void* const to = in_place ? scratch.get() : operands.result;
    double best = std::numeric_limits<double>::max();
    for (const Algorithm& algorithm : algorithms) {
      const double seconds = shortest_seconds(
          [&] {
            return plan->launch(library_->handle, shape, operands, to, algorithm, workspace_.get(), stream);
          },
          stream);
      if (seconds < 0 || seconds >= best) continue;
      best = seconds;
      plan->chosen = {algorithm, seconds};
    }
    cuda::synchronize(stream);
  }
  return *plans_.emplace(shape, std::move(plan)).first->second;
}

void Matmul::run(const MatmulShape& shape, const MatmulOperands& operands, cudaStream_t stream) {
  if (shape.rows == 0 || shape.columns == 0) return;
  if (shape.inner == 0) {  // an empty sum; the library takes no empty matrix
    if (!shape.adds) clear(operands.result, shape.rows * shape.columns * 2, stream);
    return;
  }
  Plan& ready = plan(shape, operands, stream);
  ready.has_run = true;
  ready.point_at(shape, operands);
  check_blas(ready.launch(library_->handle, shape, operands, operands.result, ready.chosen.algorithm,
                          workspace_.get(), stream),
             describe(shape));
}

Choices Matmul::choices() const {
  Choices all;
  for (const auto& [shape, plan] : plans_) {
    if (plan->has_run) all[shape] = plan->chosen;
  }
  return all;
}

void Matmul::choose(const Choices& choices) {
  plans_.clear();
  for (const auto& [shape, chosen] : choices) {
    auto plan = std::make_unique<Plan>(shape);
    cublasLtMatmulAlgo_t algo;
    std::memcpy(&algo, &chosen.algorithm, sizeof algo);
    cublasLtMatmulHeuristicResult_t result;
    const auto status =
        cublasLtMatmulAlgoCheck(library_->handle, plan->desc.get(), plan->right.get(), plan->left.get(),
                                plan->result.get(), plan->result.get(), &algo, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > static_cast<std::size_t>(kWorkspaceBytes))
      continue;
    plan->chosen = chosen;
    plans_[shape] = std::move(plan);
  }
}

std::string Matmul::identity() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return text("cuBLASLt ", cublasLtGetVersion(), " on ", describe(device).name);
}

}  // namespace lockstep::cuda
