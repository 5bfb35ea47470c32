#include "checkpoint/shard.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "hdf5/file.hpp"

namespace lockstep::checkpoint {

namespace {

std::string buffer_path(const std::string& name) {
  return "buffers/" + name;
}

hdf5::Scalar scalar_of(const at::Tensor& values) {
  switch (values.scalar_type()) {
    case at::kFloat:
      return hdf5::Scalar::float32;
    case at::kHalf:
      return hdf5::Scalar::float16;
    case at::kBFloat16:
      return hdf5::Scalar::bfloat16;
    case at::kDouble:
      return hdf5::Scalar::float64;
    case at::kLong:
      return hdf5::Scalar::int64;
    default:
      throw UsageError(text("a checkpoint holds no tensors of type ", at::toString(values.scalar_type())));
  }
}

/// HDF5 shapes need a dimension: one element stands for a tensor without any.
hdf5::Shape stored_shape(const at::Tensor& values) {
  return values.dim() == 0 ? hdf5::Shape{1} : values.sizes().vec();
}

void check_array(const Snapshot& snapshot, const FlatArray& array) {
  const at::Tensor& values = array.values;
  if (values.scalar_type() != at::kFloat || values.dim() != 1 || values.numel() != snapshot.flat_size ||
      !values.is_contiguous()) {
    throw Error(ExitCode::internal, text("array ", array.name, " of a snapshot is not contiguous float32 [",
                                         snapshot.flat_size, "]"));
  }
}

/// `values` are elements [range.begin, range.end) of the masters.
void check_finite(const Snapshot& snapshot, FlatRange range, const float* values) {
  for (std::int64_t i = 0; i < range.count(); ++i) {
    if (std::isfinite(values[i])) continue;
    const std::int64_t place = range.begin + i;
    std::string name = "padding";
    for (const TensorPlace& tensor : snapshot.layout) {
      if (place >= tensor.begin && place < tensor.begin + tensor.count) name = tensor.name;
    }
    throw Error(ExitCode::internal, text("the master weights of ", name, " hold ", values[i], " at step ",
                                         snapshot.step, ": not saved, older checkpoints are intact"));
  }
}

/// A dataset of exactly this type and shape, or DataError.
hdf5::Dataset open_dataset(const hdf5::File& file, const std::string& name, hdf5::Scalar scalar,
                           const hdf5::Shape& shape) {
  hdf5::Dataset dataset = file.dataset(name);
  if (dataset.scalar() != scalar || dataset.shape() != shape || dataset.big_endian()) {
    throw DataError(file.path(), name, -1,
                    text("is ", hdf5::name(dataset.scalar()), " ", hdf5::to_text(dataset.shape()),
                         ", expected ", hdf5::name(scalar), " ", hdf5::to_text(shape)));
  }
  return dataset;
}

/// Copies what shard `rank` holds of one array into `destination` [into.flat_size].
void read_piece(const hdf5::Dataset& dataset, const Manifest& manifest, FlatRange range,
                const std::unordered_map<std::string, std::int64_t>& begins, float* destination) {
  for (const TensorPlace& tensor : manifest.layout) {
    const std::int64_t begin = std::max(tensor.begin, range.begin);
    const std::int64_t end = std::min(tensor.begin + tensor.count, range.end);
    if (begin >= end) continue;
    dataset.read(begin - range.begin, end - begin,
                 destination + begins.at(tensor.name) + begin - tensor.begin);
  }
}

}  // namespace

std::string scalar_name(const at::Tensor& values) {
  return std::string(hdf5::name(scalar_of(values)));
}

std::int64_t payload_bytes(const Snapshot& snapshot, int world_size) {
  std::int64_t bytes = 0;
  for (const FlatArray& array : snapshot.arrays) bytes += static_cast<std::int64_t>(array.values.nbytes());
  for (const NamedTensor& buffer : snapshot.buffers) {
    bytes += world_size * static_cast<std::int64_t>(buffer.values.nbytes());
  }
  return bytes;
}

void write_shard(const std::string& path, const Snapshot& snapshot, int rank, int world_size) {
  const FlatRange range = range_of(snapshot.flat_size, rank, world_size);
  hdf5::File file = hdf5::File::create(path, ExitCode::checkpoint_io);
  for (const FlatArray& array : snapshot.arrays) {
    check_array(snapshot, array);
    const at::Tensor host = array.values.detach().narrow(0, range.begin, range.count()).cpu();
    if (array.name == "masters") check_finite(snapshot, range, host.const_data_ptr<float>());
    hdf5::Dataset dataset = file.create_dataset(array.name, hdf5::Scalar::float32, {range.count()});
    if (host.numel() > 0) dataset.write(host.const_data_ptr());
  }
  for (const NamedTensor& buffer : snapshot.buffers) {
    const at::Tensor host = buffer.values.detach().cpu().contiguous();
    hdf5::Dataset dataset =
        file.create_dataset(buffer_path(buffer.name), scalar_of(host), stored_shape(host));
    if (host.numel() > 0) dataset.write(host.const_data_ptr());
  }
  file.set_integer("step", snapshot.step);
  file.set_integer("flat_begin", range.begin);
  file.set_integer("flat_end", range.end);
  file.close();
  sync_path(path);
}

void read_arrays(const std::string& folder, const Manifest& manifest, Snapshot& into) {
  std::unordered_map<std::string, std::int64_t> begins;
  for (const TensorPlace& tensor : into.layout) begins[tensor.name] = tensor.begin;
  for (FlatArray& array : into.arrays) {
    check_array(into, array);
    at::Tensor values = array.values.detach();
    at::Tensor host = values.cpu();  // the array itself where it is on the host
    for (int shard = 0; shard < manifest.world_size; ++shard) {
      const FlatRange range = range_of(manifest.flat_size, shard, manifest.world_size);
      const hdf5::File file = hdf5::File::open(folder + "/" + shard_name(shard, manifest.world_size));
      const hdf5::Dataset dataset = open_dataset(file, array.name, hdf5::Scalar::float32, {range.count()});
      read_piece(dataset, manifest, range, begins, host.mutable_data_ptr<float>());
    }
    if (!values.is_cpu()) values.copy_(host);
  }
}

void read_buffers(const std::string& folder, const Manifest& manifest, Snapshot& into, int rank,
                  int world_size) {
  if (into.buffers.empty()) return;
  const int shard = world_size == manifest.world_size ? rank : 0;
  const hdf5::File file = hdf5::File::open(folder + "/" + shard_name(shard, manifest.world_size));
  for (NamedTensor& buffer : into.buffers) {
    at::Tensor values = buffer.values.detach();
    at::Tensor host = at::empty(values.sizes(), values.options().device(at::kCPU));
    const hdf5::Dataset dataset =
        open_dataset(file, buffer_path(buffer.name), scalar_of(host), stored_shape(host));
    if (host.numel() > 0) dataset.read(host.mutable_data_ptr());
    values.copy_(host);
  }
}

}  // namespace lockstep::checkpoint
