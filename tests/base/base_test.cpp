#include <filesystem>
#include <type_traits>

#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/handle.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {

struct CountedTraits {
  using Type = int;
  static Type empty() { return 0; }
  static void release(Type raw) noexcept { released += raw; }
  static inline int released = 0;
};
using Counted = Handle<CountedTraits>;

}  // namespace

TEST_CASE("a handle releases once, moves empty their source, and copies do not exist") {
  static_assert(std::is_nothrow_move_constructible_v<Counted> && std::is_nothrow_move_assignable_v<Counted>);
  static_assert(!std::is_copy_constructible_v<Counted> && !std::is_copy_assignable_v<Counted>);
  CountedTraits::released = 0;
  {
    Counted first(1);
    Counted second(std::move(first));
    CHECK(!first);
    Counted third(10);
    third = std::move(second);
    CHECK(CountedTraits::released == 10);
    CHECK(third.get() == 1);
  }
  CHECK(CountedTraits::released == 11);
}

TEST_CASE("every error is one line and carries its exit code") {
  const DataError damaged("shard.h5", "images", 7, "is cut off");
  CHECK(std::string(damaged.what()) == "shard.h5, dataset images, row 7: is cut off");
  CHECK(damaged.code() == ExitCode::bad_data);
  CHECK_FALSE(damaged.on_all_ranks());
  CHECK(UsageError("x").on_all_ranks());
  CHECK(std::string(ApiError("MPI", "MPI_Init", 3, "no").what()) == "MPI: MPI_Init failed with 3 (no)");
}

TEST_CASE("the nearest known word is found, a far one is not") {
  CHECK(nearest("--global-bach", {"--global-batch", "--micro-batch"}) == "--global-batch");
  CHECK(nearest("xyzzy", {"lenet", "mlp"}).empty());
}

TEST_CASE("bytes and seconds print as a person reads them") {
  CHECK(format_bytes(640) == "640 B");
  CHECK(format_bytes(1536ll << 20) == "1.50 GiB");
  CHECK(format_seconds(7.26) == "7.3 s");
  CHECK(format_seconds(3725) == "1h 02m");
}

TEST_CASE("split and join are inverse for words without separators") {
  CHECK(split("a,b,", ',') == std::vector<std::string>{"a", "b", ""});
  CHECK(join({"a", "b"}, ", ") == "a, b");
}

TEST_CASE("a file written atomically is whole, and a failing write leaves the old one") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("lockstep-base-" + std::to_string(::getpid()));
  make_folder(folder.string());
  const auto path = (folder / "note").string();
  write_file_atomically(path, "one");
  CHECK(read_text_file(path) == "one");
  CHECK_THROWS_AS(write_file_atomically((folder / "none" / "note").string(), "two"), Error);
  CHECK(read_text_file(path) == "one");
  CHECK_THROWS_AS(make_folder(path), Error);
  std::filesystem::remove_all(folder);
}

TEST_CASE("hashes are the published ones and mixing keys depends on order") {
  CHECK(hex(hash_text("")) == "2d06800538d394c2");  // XXH3-64 of nothing, from the xxHash specification
  CHECK(mix_all(1, 2) != mix_all(2, 1));
}
