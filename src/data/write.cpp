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

constexpr std::int64_t kWriteTokens = 1 << 22;  // about so many are copied together

// Rows overlap by one token, so they are laid out before they are written, a few at a time.
template <class Integer>
void write_tokens(hdf5::File& file, Scalar scalar, const TokenShardContent& content) {
  const std::int64_t length = content.sequence_length;
  hdf5::Dataset dataset = file.create_dataset("tokens", scalar, {content.rows, length + 1});
  const std::int64_t together = std::max<std::int64_t>(1, kWriteTokens / (length + 1));
  std::vector<Integer> rows;
  for (std::int64_t first = 0; first < content.rows; first += together) {
    const std::int64_t last = std::min(content.rows, first + together);
    rows.clear();
    for (std::int64_t row = first; row < last; ++row) {
      const auto tokens = content.tokens.subspan(static_cast<std::size_t>(row * length),
                                                 static_cast<std::size_t>(length + 1));
      for (const std::uint32_t token : tokens) rows.push_back(static_cast<Integer>(token));
    }
    dataset.write(first, last - first, rows.data());
  }
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

void write_token_shard(const std::string& path, const TokenShardContent& content) {
  hdf5::File file = hdf5::File::create(path);
  file.set_string("format", "lockstep-1");
  file.set_integer("vocabulary", content.vocabulary);
  if (!content.tokenizer_hash.empty()) file.set_string("tokenizer", content.tokenizer_hash);
  if (content.vocabulary <= 65536)
    write_tokens<std::uint16_t>(file, Scalar::uint16, content);
  else
    write_tokens<std::uint32_t>(file, Scalar::uint32, content);
  file.close();
}

}  // namespace lockstep::data
