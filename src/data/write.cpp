#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "data/pack.hpp"
#include "hdf5/file.hpp"

namespace lockstep::data {

namespace {

template <class Integer>
void write_targets(hdf5::File& file, Scalar scalar, const ShardContent& content) {
  std::vector<Integer> labels(static_cast<std::size_t>(content.rows));
  std::transform(content.targets, content.targets + content.rows, labels.begin(),
                 [](std::int64_t label) { return static_cast<Integer>(label); });
  file.create_dataset("targets", scalar, {content.rows}).write(labels.data());
}

}  // namespace

void write_shard(const std::string& path, const ShardContent& content) {
  hdf5::File file = hdf5::File::create(path);
  file.set_string("format", "lockstep-1");
  file.set_integer("classes", content.classes);
  if (!content.mean.empty()) {
    file.set_reals("mean", content.mean);
    file.set_reals("std", content.std_deviation);
  }
  Shape shape = content.shape;
  shape.insert(shape.begin(), content.rows);
  file.create_dataset("inputs", content.scalar, shape).write(content.inputs);
  if (content.classes <= 256)
    write_targets<std::uint8_t>(file, Scalar::uint8, content);
  else
    write_targets<std::int32_t>(file, Scalar::int32, content);
  file.close();
}

}  // namespace lockstep::data
