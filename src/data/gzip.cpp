#include "data/gzip.hpp"

#include <algorithm>

#include <libdeflate.h>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "base/text.hpp"

namespace lockstep::data {

namespace {

constexpr std::size_t kLeastRoom = 1 << 16;

struct DecompressorTraits {
  using Type = libdeflate_decompressor*;
  static Type empty() { return nullptr; }
  static void release(Type raw) noexcept { libdeflate_free_decompressor(raw); }
};

}  // namespace

std::string read_plain_or_gzip(const std::string& path) {
  const std::string stored = read_text_file(path);
  if (stored.size() < 2 || stored[0] != '\x1f' || stored[1] != '\x8b') return stored;
  const Handle<DecompressorTraits> decompressor(libdeflate_alloc_decompressor());
  if (!decompressor) throw Error(ExitCode::operating_system, "no memory to inflate " + path);
  std::string plain;
  std::size_t read = 0;
  std::size_t room =
      std::max(kLeastRoom, 4 * stored.size());  // doubled until it suffices; the stored size may lie
  while (read < stored.size()) {
    const std::size_t begin = plain.size();
    plain.resize(begin + room);
    std::size_t used = 0;
    std::size_t made = 0;
    const libdeflate_result result =
        libdeflate_gzip_decompress_ex(decompressor.get(), stored.data() + read, stored.size() - read,
                                      plain.data() + begin, room, &used, &made);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
      plain.resize(begin);
      room *= 2;
      continue;
    }
    if (result != LIBDEFLATE_SUCCESS) {
      throw DataError(path, "", -1,
                      text("its gzip data is damaged or cut off after byte ", read, " of ", stored.size()));
    }
    plain.resize(begin + made);
    read += used;
  }
  return plain;
}

}  // namespace lockstep::data
