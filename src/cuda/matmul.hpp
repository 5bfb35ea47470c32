#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

namespace lockstep::cuda {

enum class Number { float16, bfloat16 };

/// What happens to a product before it is stored; the result's rows and columns are those of MatmulShape.
enum class Epilogue {
  none,
  bias,             ///< adds bias[column]
  bias_gelu,        ///< adds bias[column], stores that in `auxiliary`, and applies GELU in its tanh form
  gelu_slope,       ///< multiplies by GELU's derivative at `auxiliary`
  gelu_slope_sums,  ///< the same, and writes the sums over rows to `bias`
  left_sums,        ///< also writes the sums over `inner` of the left matrix to `bias`, one a row
};

/// result [rows, columns] = left [rows, inner] x right [inner, columns], all row-major, in float, rounded
/// once. A transposed matrix is stored the other way round: left as [inner, rows], right as [columns, inner].
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
  double seconds = 0;  ///< of one product, as it was timed; 0 where it was not
};

using Choices = std::map<MatmulShape, ChosenAlgorithm>;

/// Gives device memory that is free again when the pointer is gone, in the order of the stream in use.
using DeviceMemory = std::function<std::shared_ptr<void>(std::int64_t bytes)>;

/// Matrix products through cuBLASLt, each shape with the algorithm that was fastest when it first ran.
///
/// The first run of a shape times the library's candidates on the operands themselves and waits for the
/// device; inside graph capture, and after freeze(), the library's own first candidate is taken instead.
/// Candidates whose partial sums are not float are left out. Runs of one shape are bit-equal as long as its
/// algorithm stays. Local; one object serves one stream.
class Matmul {
 public:
  explicit Matmul(const DeviceMemory& memory);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// Throws ApiError("cuBLASLt", ...) where the library refuses a shape or fails.
  void run(const MatmulShape& shape, const MatmulOperands& operands, cudaStream_t stream);

  /// Of the shapes that have run.
  Choices choices() const;
  /// These shapes use these algorithms from now on; all others are forgotten. One that this device or version
  /// of the library refuses is left out.
  void choose(const Choices& choices);
  /// No shape is timed any more.
  void freeze() { frozen_ = true; }

  /// What `choices` depend on: library version and device name.
  static std::string identity();

 private:
  struct Plan;
  struct Library;
  Plan& plan(const MatmulShape& shape, const MatmulOperands& operands, cudaStream_t stream);

  DeviceMemory memory_;
  std::unique_ptr<Library> library_;
  std::map<MatmulShape, std::unique_ptr<Plan>> plans_;
  std::shared_ptr<void> workspace_;
  bool frozen_ = false;
};

}  // namespace lockstep::cuda
