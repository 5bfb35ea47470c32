#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "cuda/memory.hpp"

namespace lockstep::cuda {

enum class Number { float16, bfloat16 };

/// What happens to a product before it is stored; the result's rows and columns are those of MatmulShape.
enum class Epilogue {
  none,
  bias,           ///< adds bias[column]
  bias_gelu,       ///< adds bias[column], stores that in `auxiliary`, and applies GELU in its tanh form
  gelu_slope,      ///< multiplies by GELU's derivative at `auxiliary`
  gelu_slope_sums, ///< the same, and writes the sums over rows to `bias`
  left_sums,       ///< also writes the sums over `inner` of the left matrix to `bias`, one a row
};

/// result [rows, columns] = left [rows, inner] x right [inner, columns], all row-major, in float, rounded once.
/// A transposed matrix is stored the other way round: left as [inner, rows], right as [columns, inner].
struct MatmulShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  bool left_transposed = false;
  bool right_transposed = false;
  bool adds = false;  ///< `added` is added before the epilogue; it may be `result` itself
  Number number = Number::float16;
  Epilogue epilogue = Epilogue::none;

  auto operator<=>(const MatmulShape&) const = default;
};

/// Device memory; all matrices contiguous and aligned to 16 bytes.
struct MatmulOperands {
  const void* left = nullptr;
  const void* right = nullptr;
  const void* added = nullptr;
  void* result = nullptr;
  void* bias = nullptr;       ///< read or written as the epilogue says; of the matrices' type
  void* auxiliary = nullptr;  ///< [rows, columns]
};

/// cuBLASLt's own description of one algorithm, valid for one version of the library and one kind of device.
using Algorithm = std::array<std::uint64_t, 8>;

struct ChosenAlgorithm {
  Algorithm algorithm{};
  double seconds = 0;  ///< of one product, as it was timed; 0 where it came from a file
};

/// Matrix products through cuBLASLt, each shape with the algorithm that was fastest when it first ran.
///
/// The first run of a shape times the library's candidates on the operands themselves and waits for the device;
/// inside graph capture the library's first candidate is taken instead. Candidates whose partial sums are not
/// float are left out. Runs of one shape are bit-equal as long as its algorithm stays, so ranks, and runs that
/// resume, exchange `choices`. Local; one object serves one stream.
class Matmul {
 public:
  Matmul();
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// Throws ApiError("cuBLASLt", ...) where the library refuses a shape or fails.
  void run(const MatmulShape& shape, const MatmulOperands& operands, cudaStream_t stream);

  std::map<MatmulShape, ChosenAlgorithm> choices() const;
  /// Shapes of `choices` use these algorithms from now on. Throws ApiError for one that this device refuses.
  void choose(const std::map<MatmulShape, ChosenAlgorithm>& choices);

  /// What `choices` depend on: library version and device name.
  static std::string identity();

 private:
  struct Plan;
  struct Library;
  Plan& plan(const MatmulShape& shape, const MatmulOperands& operands, cudaStream_t stream);

  std::unique_ptr<Library> library_;
  std::map<MatmulShape, std::unique_ptr<Plan>> plans_;
  DeviceBuffer workspace_;
};

}  // namespace lockstep::cuda
