#include "hdf5/dataset.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "hdf5/library.hpp"

namespace lockstep::hdf5 {

std::string to_text(const Shape& shape) {
  std::vector<std::string> words;
  words.reserve(shape.size());
  for (const std::int64_t extent : shape) words.push_back(std::to_string(extent));
  return text("[", join(words, ", "), "]");
}

Dataset::Dataset(Identifier id, Origin origin) : Object(std::move(id), std::move(origin)) {
  read_storage();
  type_ = checked(H5Dget_type(id_.get()), "H5Dget_type");
  scalar_ = scalar_of(type_.get(), path(), name());
  big_endian_ = size_bytes(scalar_) > 1 && H5Tget_order(type_.get()) == H5T_ORDER_BE;
  const Identifier space = checked(H5Dget_space(id_.get()), "H5Dget_space");
  const int dimensions = H5Sget_simple_extent_ndims(space.get());
  if (dimensions < 0 || H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
    throw DataError(path(), name(), -1, "has no extent");
  }
  std::vector<hsize_t> extents(static_cast<std::size_t>(dimensions));
  H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  shape_.assign(extents.begin(), extents.end());
  std::int64_t bytes = size_bytes(scalar_);
  for (const std::int64_t extent : shape_) {  // a crafted shape must not wrap around to a small buffer
    if (extent < 0 || __builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) {
      throw DataError(path(), name(), -1, text("has the impossible shape ", to_text(shape_)));
    }
  }
}

// Layout, chunk shape, filters. Asked before anything that could make the library look at another file.
void Dataset::read_storage() {
  const Identifier creation = checked(H5Dget_create_plist(id_.get()), "H5Dget_create_plist");
  switch (H5Pget_layout(creation.get())) {
    case H5D_COMPACT:
      layout_ = Layout::compact;
      break;
    case H5D_CONTIGUOUS:
      layout_ = Layout::contiguous;
      break;
    case H5D_CHUNKED:
      layout_ = Layout::chunked;
      break;
    default:
      throw DataError(
          path(), name(), -1,
          "is a virtual dataset, whose missing sources would read as fill values; copy its data into "
          "shards (h5repack) and use those");
  }
  if (layout_ == Layout::contiguous && H5Pget_external_count(creation.get()) != 0) {
    throw DataError(
        path(), name(), -1,
        "keeps its data in external files; copy it into shards (h5repack -l CONTI) and use those");
  }
  if (layout_ != Layout::chunked) return;
  hsize_t extents[H5S_MAX_RANK] = {};
  const int dimensions = H5Pget_chunk(creation.get(), H5S_MAX_RANK, extents);
  chunk_.assign(extents, extents + std::max(dimensions, 0));
  const int count = std::max(H5Pget_nfilters(creation.get()), 0);
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0;
    std::size_t parameters = 0;
    char words[64] = {};
    unsigned config = 0;
    const H5Z_filter_t filter = H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &parameters,
                                               nullptr, sizeof words - 1, words, &config);
    filters_.push_back({filter, words, H5Zfilter_avail(filter) > 0});
  }
}

std::int64_t Dataset::row_bytes() const {
  std::int64_t bytes = size_bytes(scalar_);
  for (std::size_t i = 1; i < shape_.size(); ++i) bytes *= shape_[i];
  return bytes;
}

std::int64_t Dataset::offset() const {
  const Lock lock;
  if (layout_ != Layout::contiguous) return -1;
  const haddr_t address = H5Dget_offset(id_.get());
  return address == HADDR_UNDEF ? -1 : static_cast<std::int64_t>(address);
}

bool Dataset::is_complete() const {
  if (std::find(shape_.begin(), shape_.end(), 0) != shape_.end() || layout_ == Layout::compact) return true;
  if (layout_ == Layout::contiguous) return offset() >= 0;
  const Lock lock;
  hsize_t expected = 1;
  for (std::size_t i = 0; i < shape_.size(); ++i) {
    expected *= static_cast<hsize_t>((shape_[i] + chunk_[i] - 1) / chunk_[i]);
  }
  const Identifier space = checked(H5Dget_space(id_.get()), "H5Dget_space");
  hsize_t stored = 0;
  if (H5Dget_num_chunks(id_.get(), space.get(), &stored) < 0) {
    throw DataError(path(), name(), -1, text("its chunks cannot be counted: ", failure_words()));
  }
  return stored == expected;
}

Dataset::Selection Dataset::select(std::int64_t first_row, std::int64_t rows) const {
  if (shape_.empty() || first_row < 0 || rows < 0 || first_row > shape_[0] - rows) {
    throw UsageError(text(path(), ", dataset ", name(), ": rows [", first_row, ", ", first_row, " + ", rows,
                          ") are outside of shape ", to_text(shape_)));
  }
  std::vector<hsize_t> start(shape_.size(), 0);
  std::vector<hsize_t> extent(shape_.begin(), shape_.end());
  start[0] = static_cast<hsize_t>(first_row);
  extent[0] = static_cast<hsize_t>(rows);
  Selection selection;
  selection.file = checked(H5Dget_space(id_.get()), "H5Dget_space");
  check(H5Sselect_hyperslab(selection.file.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(),
                            nullptr),
        "H5Sselect_hyperslab");
  selection.memory =
      checked(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), "H5Screate_simple");
  return selection;
}

void Dataset::read(void* out) const {
  const Lock lock;
  if (std::find(shape_.begin(), shape_.end(), 0) != shape_.end()) return;
  if (H5Dread(id_.get(), type_.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0) {
    throw DataError(path(), name(), -1, text("cannot be read: ", failure_words()));
  }
}

void Dataset::read(std::int64_t first_row, std::int64_t rows, void* out) const {
  const Lock lock;
  const Selection selection = select(first_row, rows);
  if (rows == 0 || row_bytes() == 0) return;
  if (H5Dread(id_.get(), type_.get(), selection.memory.get(), selection.file.get(), H5P_DEFAULT, out) < 0) {
    throw DataError(path(), name(), first_row,
                    text("and the ", rows - 1, " after it cannot be read: ", failure_words()));
  }
}

void Dataset::write(const void* data) {
  const Lock lock;
  if (std::find(shape_.begin(), shape_.end(), 0) != shape_.end()) return;
  check_write(H5Dwrite(id_.get(), type_.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0, "cannot be written");
}

void Dataset::write(std::int64_t first_row, std::int64_t rows, const void* data) {
  const Lock lock;
  const Selection selection = select(first_row, rows);
  if (rows == 0 || row_bytes() == 0) return;
  check_write(
      H5Dwrite(id_.get(), type_.get(), selection.memory.get(), selection.file.get(), H5P_DEFAULT, data) < 0,
      "cannot be written");
}

}  // namespace lockstep::hdf5
