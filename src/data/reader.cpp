#include "data/reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "data/numbers.hpp"
#include "hdf5/file.hpp"

namespace lockstep::data {

namespace {

constexpr std::size_t kMaximumOpen = 64;  // files; the usual limit of a process is 1024 descriptors
constexpr int kBlockBits = 40;            // of a cache key

struct DescriptorTraits {
  using Type = int;
  static Type empty() { return -1; }
  static void release(Type raw) noexcept { ::close(raw); }
};

}  // namespace

struct Rows::OpenShard {
  const Shard* shard;
  std::size_t index;
  Handle<DescriptorTraits> descriptor;
  std::optional<hdf5::File> file;  // where something is not contiguous
  std::optional<hdf5::Dataset> inputs;
  std::optional<hdf5::Dataset> targets;
};

Rows::Rows(DataSet data, Access access, std::int64_t cache_bytes)
    : data_(std::move(data)),
      cache_bytes_(cache_bytes),
      scattered_(access == Access::rows && data_.decoded_bytes() > cache_bytes) {
  columns_.push_back({0, data_.tokens() ? "tokens" : "inputs", hdf5::size_bytes(data_.input_scalar()),
                      data_.input_row_bytes(), &Shard::inputs, &OpenShard::inputs});
  if (!data_.tokens()) {
    const std::int64_t label_bytes = hdf5::size_bytes(data_.target_scalar());
    columns_.push_back({1, "targets", label_bytes, label_bytes, &Shard::targets, &OpenShard::targets});
  }
  for (const Shard& shard : data_.shards()) {
    for (const Column& column : columns_) {
      const Storage& storage = shard.*column.storage;
      const std::int64_t rows = std::min(storage.block_rows, shard.rows);
      if (singly(column, shard) || rows * column.row_bytes <= cache_bytes_) continue;
      throw DataError(
          shard.path, column.name, -1,
          text("its chunks hold ", rows, " rows, ", format_bytes(rows * column.row_bytes),
               " that must be inflated together, more than the cache of ", format_bytes(cache_bytes_),
               "; rewrite it with fewer rows a chunk (h5repack -l CHUNK=...)"));
    }
  }
}

Rows::~Rows() = default;
Rows::Rows(Rows&&) noexcept = default;
Rows& Rows::operator=(Rows&&) noexcept = default;

void Rows::read(std::span<const std::int64_t> rows, void* inputs, std::int64_t* targets) {
  auto* out = static_cast<std::byte*>(inputs);
  for (std::size_t i = 0; i < rows.size(); ++i, out += columns_[0].row_bytes) {
    const std::size_t shard = shard_of(rows[i]);
    const std::int64_t row = rows[i] - data_.shards()[shard].first_row;
    copy(columns_[0], shard, row, out);
    if (data_.tokens()) {
      check_tokens(data_.shards()[shard], row, out);
      continue;
    }
    std::byte label[8];
    copy(columns_[1], shard, row, label);
    to_int64(data_.target_scalar(), label, 1, targets + i);
  }
}

// An id that no embedding has a row for would be an illegal access on the device.
void Rows::check_tokens(const Shard& shard, std::int64_t row, const std::byte* tokens) {
  wide_.resize(static_cast<std::size_t>(data_.stored_shape()[0]));
  to_int64(data_.input_scalar(), tokens, data_.stored_shape()[0], wide_.data());
  const auto [least, most] = std::minmax_element(wide_.begin(), wide_.end());
  if (*least >= 0 && *most < data_.classes()) return;
  const auto wrong = *least < 0 ? least : most;
  throw DataError(
      shard.path, "tokens", static_cast<long>(row),
      text("token ", *wrong, " at position ", wrong - wide_.begin(), " is outside of the vocabulary [0, ",
           data_.classes(), "); pack the text again, or correct the attribute vocabulary"));
}

std::size_t Rows::shard_of(std::int64_t row) const {
  if (row < 0 || row >= data_.rows()) {
    throw UsageError(text("row ", row, " is outside of the data set's ", data_.rows(), " rows"));
  }
  const auto& shards = data_.shards();
  const auto after =
      std::upper_bound(shards.begin(), shards.end(), row,
                       [](std::int64_t wanted, const Shard& shard) { return wanted < shard.first_row; });
  return static_cast<std::size_t>(after - shards.begin()) - 1;
}

// Whether rows are read one by one: where blocks would hardly be used again, or are single rows beyond the
// cache's size.
bool Rows::singly(const Column& column, const Shard& shard) const {
  const Storage& storage = shard.*column.storage;
  if (storage.offset < 0) return false;
  return scattered_ || std::min(storage.block_rows, shard.rows) * column.row_bytes > cache_bytes_;
}

void Rows::copy(const Column& column, std::size_t shard, std::int64_t row, std::byte* out) {
  const Shard& from = data_.shards()[shard];
  if (singly(column, from)) {
    load(column, shard, row, 1, out);
    ++counts_.single_rows;
    return;
  }
  const std::int64_t block_rows = (from.*column.storage).block_rows;
  const std::byte* block = cached(column, shard, row / block_rows);
  std::memcpy(out, block + row % block_rows * column.row_bytes, static_cast<std::size_t>(column.row_bytes));
}

// The rows of a block, valid until the next call.
const std::byte* Rows::cached(const Column& column, std::size_t shard, std::int64_t block) {
  const std::int64_t key = (static_cast<std::int64_t>(shard) * 2 + column.tag) << kBlockBits | block;
  if (const auto found = blocks_.find(key); found != blocks_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    return recent_.front().bytes.data();
  }
  const Shard& from = data_.shards()[shard];
  const Storage& storage = from.*column.storage;
  const std::int64_t first = block * storage.block_rows;
  const std::int64_t rows = std::min(storage.block_rows, from.rows - first);
  const std::int64_t bytes = rows * column.row_bytes;
  while (!recent_.empty() && cached_bytes_ + bytes > cache_bytes_) {
    cached_bytes_ -= static_cast<std::int64_t>(recent_.back().bytes.size());
    blocks_.erase(recent_.back().key);
    recent_.pop_back();
  }
  Block loaded{key, std::vector<std::byte>(static_cast<std::size_t>(bytes))};
  load(column, shard, first, rows, loaded.bytes.data());
  ++counts_.blocks;
  recent_.push_front(std::move(loaded));
  blocks_.emplace(key, recent_.begin());
  cached_bytes_ += bytes;
  return recent_.front().bytes.data();
}

// Reads rows of one shard in this machine's byte order.
void Rows::load(const Column& column, std::size_t shard, std::int64_t first, std::int64_t rows,
                std::byte* out) {
  OpenShard& file = open(shard);
  const Storage& storage = file.shard->*column.storage;
  if (storage.offset >= 0) {
    pread_rows(column, file, first, rows, out);
  } else {
    (file.*column.dataset)->read(first, rows, out);
    if ((file.*column.dataset)->layout() == hdf5::Layout::chunked) counts_.chunks += storage.chunks_per_block;
  }
  counts_.bytes += rows * column.row_bytes;
  if (storage.big_endian)
    swap_bytes(column.element_bytes, out, rows * column.row_bytes / column.element_bytes);
}

void Rows::pread_rows(const Column& column, OpenShard& file, std::int64_t first, std::int64_t rows,
                      std::byte* out) {
  const std::int64_t wanted = rows * column.row_bytes;
  const std::int64_t start = (file.shard->*column.storage).offset + first * column.row_bytes;
  std::int64_t done = 0;
  while (done < wanted) {
    const ssize_t got =
        ::pread(file.descriptor.get(), out + done, static_cast<std::size_t>(wanted - done), start + done);
    if (got > 0) {
      done += got;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    const std::string problem = got == 0 ? text("the file ends at byte ", start + done,
                                                ", before the row does; it was "
                                                "cut off after the data set was opened")
                                         : text("cannot be read: ", std::strerror(errno));
    throw DataError(file.shard->path, column.name, static_cast<long>(first + done / column.row_bytes),
                    problem);
  }
}

Rows::OpenShard& Rows::open(std::size_t shard) {
  const auto held =
      std::find_if(open_.begin(), open_.end(), [&](const auto& entry) { return entry->index == shard; });
  if (held != open_.end()) {
    open_.splice(open_.begin(), open_, held);
    return *open_.front();
  }
  if (open_.size() >= kMaximumOpen) open_.pop_back();
  const Shard& from = data_.shards()[shard];
  auto opened = std::make_unique<OpenShard>();
  opened->shard = &from;
  opened->index = shard;
  opened->descriptor = Handle<DescriptorTraits>(::open(from.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!opened->descriptor || ::fstat(opened->descriptor.get(), &status) != 0) {
    throw DataError(from.path, "", -1, text("cannot be opened any more: ", std::strerror(errno)),
                    ExitCode::input_missing);
  }
  if (status.st_size != from.file_bytes) {
    throw DataError(from.path, "", -1,
                    text("has ", status.st_size, " bytes, but had ", from.file_bytes,
                         " when the data set was opened; it must not change during a run"));
  }
  for (const Column& column : columns_) {
    if ((from.*column.storage).offset >= 0) continue;
    if (!opened->file) opened->file = hdf5::File::open(from.path);
    (*opened).*column.dataset = opened->file->dataset(column.name);
  }
  ++counts_.opens;
  open_.push_front(std::move(opened));
  return *open_.front();
}

}  // namespace lockstep::data
