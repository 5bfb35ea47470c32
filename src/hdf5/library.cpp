#include "hdf5/library.hpp"

#include <array>

#include "base/text.hpp"
#include "hdf5/file.hpp"

namespace lockstep::hdf5 {

namespace {

// One for the process, since the library's state is one for the process.
std::recursive_mutex library_mutex;

struct Words {
  std::string cause;
  std::string effect;
};

herr_t collect(unsigned depth, const H5E_error2_t* record, void* out) {
  auto& words = *static_cast<Words*>(out);
  const std::string line = record->desc != nullptr ? record->desc : "";
  if (depth == 0)
    words.cause = line;
  else if (words.effect.empty() && line != words.cause)
    words.effect = line;
  return 0;
}

}  // namespace

Lock::Lock() : guard_(library_mutex) {
  thread_local bool quiet = false;
  if (quiet) return;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  quiet = true;
}

std::string failure_words() {
  Words words;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &words);
  if (words.cause.empty()) return "no reason given";
  return words.effect.empty() ? words.cause : words.cause + "; " + words.effect;
}

Identifier checked(hid_t id, const char* call, SourceLine where) {
  if (id < 0) throw ApiError("HDF5", call, static_cast<long>(id), failure_words(), ExitCode::internal, where);
  return Identifier(id);
}

void check(herr_t status, const char* call, SourceLine where) {
  if (status < 0) throw ApiError("HDF5", call, status, failure_words(), ExitCode::internal, where);
}

void IdentifierTraits::release(Type raw) noexcept {
  const Lock lock;
  H5Idec_ref(raw);
}

bool library_is_threadsafe() {
  const Lock lock;
  hbool_t threadsafe = 0;
  H5is_library_threadsafe(&threadsafe);
  return threadsafe != 0;
}

std::string library_version() {
  const Lock lock;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return text(major, '.', minor, '.', release);
}

}  // namespace lockstep::hdf5
