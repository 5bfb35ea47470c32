#include "comm/communicator.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/check.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/nccl_communicator.hpp"
#include "comm/single.hpp"

namespace lockstep::comm {

Communicator::~Communicator() = default;

std::int64_t size_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::uint8:
      return 1;
    case Scalar::float16:
    case Scalar::bfloat16:
      return 2;
    case Scalar::float32:
      return 4;
    case Scalar::float64:
    case Scalar::int64:
      break;
  }
  return 8;
}

std::string name_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::float32:
      return "float32";
    case Scalar::float16:
      return "float16";
    case Scalar::bfloat16:
      return "bfloat16";
    case Scalar::float64:
      return "float64";
    case Scalar::int64:
      return "int64";
    case Scalar::uint8:
      break;
  }
  return "uint8";
}

void check_buffer(const Buffer& buffer, const char* call) {
  if (buffer.count < 0 || (buffer.data == nullptr && buffer.count > 0)) {
    throw UsageError(
        text(call, " of ", buffer.count, " elements of ", name_of(buffer.scalar), " at ", buffer.data));
  }
}

void check_root(int root, int size) {
  if (root < 0 || root >= size) throw UsageError(text("root ", root, " is not one of ", size, " ranks"));
}

std::int64_t row_count(const Buffer& all, int size) {
  if (all.count % size != 0) {
    throw UsageError(
        text("reduce_scatter of ", all.count, " elements, which is no multiple of ", size, " ranks"));
  }
  return all.count / size;
}

std::unique_ptr<Communicator> make_communicator(const mpi::Communicator& world, const Options& options,
                                                cudaStream_t compute) {
  if (world.size() == 1) return std::make_unique<SingleCommunicator>(options, compute);
  if (options.cuda) return std::make_unique<NcclCommunicator>(world, options, compute);
  return std::make_unique<MpiCommunicator>(world, options);
}

}  // namespace lockstep::comm
