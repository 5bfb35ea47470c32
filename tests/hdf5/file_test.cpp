#include "hdf5/file.hpp"

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <type_traits>

#include <sys/resource.h>

#include "base/text.hpp"
#include "support/catch.hpp"
#include "support/raw_hdf5.hpp"
#include "support/shards.hpp"

using namespace lockstep;
using namespace lockstep::hdf5;
using lockstep::test::contains;
using lockstep::test::TemporaryFolder;

namespace {

ExitCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::done;
}

void write_sample(const std::string& path) {
  File file = File::create(path);
  file.set_integer("classes", 10);
  file.set_real("rate", 0.5);
  file.set_string("format", "sample");
  file.set_reals("mean", {0.25, 0.75});
  Dataset values = file.create_dataset("group/values", Scalar::float32, {3, 2});
  const float data[] = {0, 1, 2, 3, 4, 5};
  values.write(data);
  values.set_integer("step", 7);
  std::vector<std::uint8_t> large(8192, 9);
  file.create_dataset("large", Scalar::uint8, {8192}).write(large.data());
}

}  // namespace

TEST_CASE("files and datasets move and do not copy") {
  static_assert(std::is_nothrow_move_constructible_v<File> && !std::is_copy_constructible_v<File>);
  static_assert(std::is_nothrow_move_constructible_v<Dataset> && !std::is_copy_constructible_v<Dataset>);
}

TEST_CASE("what is written is read back: datasets, rows of them, attributes") {
  const TemporaryFolder folder;
  write_sample(folder / "a.h5");
  const File file = File::open(folder / "a.h5");
  CHECK(file.integer("classes") == 10);
  CHECK(file.real("rate") == 0.5);
  CHECK(file.string("format") == "sample");
  CHECK(file.reals("mean") == std::vector<double>{0.25, 0.75});
  CHECK(file.has_attribute("mean"));
  CHECK_FALSE(file.has_attribute("std"));
  CHECK(file.has("group/values"));
  CHECK_FALSE(file.has("none/values"));
  const Dataset values = file.dataset("group/values");
  CHECK(values.shape() == Shape{3, 2});
  CHECK(values.rows() == 3);
  CHECK(values.row_bytes() == 8);
  CHECK(values.scalar() == Scalar::float32);
  CHECK_FALSE(values.big_endian());
  CHECK(values.layout() == Layout::contiguous);
  CHECK(values.is_complete());
  CHECK(values.integer("step") == 7);
  float all[6] = {};
  values.read(all);
  CHECK(all[5] == 5);
  float last[2] = {};
  values.read(2, 1, last);
  CHECK(last[0] == 4);
  CHECK_THROWS_AS(values.read(2, 2, all), UsageError);
  CHECK_THROWS_WITH(file.integer("rate"), contains("attribute rate is not one integer"));
  CHECK_THROWS_WITH(file.integer("steps"), contains("a.h5: attribute steps is missing"));
  CHECK_THROWS_WITH(file.dataset("group/none"), contains("dataset group/none: is missing"));
}

TEST_CASE("rows of a new dataset can be written in parts, and empty datasets hold nothing") {
  const TemporaryFolder folder;
  {
    File file = File::create(folder / "a.h5");
    Dataset values = file.create_dataset("values", Scalar::int64, {4});
    const std::int64_t front[] = {1, 2};
    const std::int64_t back[] = {3, 4};
    values.write(2, 2, back);
    values.write(0, 2, front);
    file.create_dataset("none", Scalar::float32, {0, 5}).write(nullptr);
  }
  const File file = File::open(folder / "a.h5");
  std::int64_t all[4] = {};
  file.dataset("values").read(all);
  CHECK(std::vector<std::int64_t>(all, all + 4) == std::vector<std::int64_t>{1, 2, 3, 4});
  const Dataset none = file.dataset("none");
  CHECK(none.shape() == Shape{0, 5});
  CHECK(none.offset() == -1);
  none.read(nullptr);
}

TEST_CASE("the same content makes byte-identical files, with data where offset() says, aligned") {
  const TemporaryFolder folder;
  write_sample(folder / "a.h5");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 stores times in seconds
  write_sample(folder / "b.h5");
  const std::string bytes = read_text_file(folder / "a.h5");
  CHECK(bytes == read_text_file(folder / "b.h5"));
  const File file = File::open(folder / "a.h5");
  const std::int64_t large = file.dataset("large").offset();
  CHECK(large % 4096 == 0);
  CHECK(bytes.substr(static_cast<std::size_t>(large), 8192) == std::string(8192, '\x09'));
  float third = 0;
  std::memcpy(&third, bytes.data() + file.dataset("group/values").offset() + 8, sizeof third);
  CHECK(third == 2);
}

TEST_CASE("every type of element is stored and recognised, in both byte orders") {
  const TemporaryFolder folder;
  const std::vector<std::byte> zeros(64);
  for (int i = 0; i < 12; ++i) {
    const auto scalar = static_cast<Scalar>(i);
    CHECK(scalar_named(name(scalar)) == scalar);
    for (const bool big_endian : {false, true}) {
      const std::string path = folder / text(name(scalar), big_endian, ".h5");
      test::add_dataset(path, {std::string("values"), scalar, {8}, big_endian}, zeros.data());
      const Dataset values = File::open(path).dataset("values");
      CHECK(values.scalar() == scalar);
      CHECK(values.row_bytes() == size_bytes(scalar));
      CHECK(values.big_endian() == (big_endian && size_bytes(scalar) > 1));
    }
  }
  CHECK_THROWS_AS(scalar_named("int128"), UsageError);
}

TEST_CASE("half-precision bits pass through unchanged, subnormals, infinities and NaNs too") {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> bits{0x0001, 0x03ff, 0x7c00, 0xfc00, 0x7e01, 0x7c01, 0x8000, 0x3c00};
  File::create(folder / "a.h5").create_dataset("values", Scalar::float16, {8}).write(bits.data());
  std::vector<std::uint16_t> read(8);
  File::open(folder / "a.h5").dataset("values").read(read.data());
  CHECK(read == bits);
}

TEST_CASE("a file that does not open says why, with the exit code for it") {
  const TemporaryFolder folder;
  write_sample(folder / "a.h5");
  CHECK(code_of([&] { File::open(folder / "none.h5"); }) == ExitCode::input_missing);
  CHECK_THROWS_WITH(File::open(folder / "none.h5"), contains("none.h5: no such file"));
  CHECK_THROWS_WITH(File::open(folder.path()), contains("is a folder"));
  std::ofstream(folder / "page.h5") << "<html>not found</html>";
  CHECK_THROWS_WITH(File::open(folder / "page.h5"), contains("is not an HDF5 file (22 bytes;"));
  std::ofstream(folder / "empty.h5").flush();
  CHECK_THROWS_WITH(File::open(folder / "empty.h5"), contains("is not an HDF5 file"));
  const auto size = std::filesystem::file_size(folder / "a.h5");
  std::filesystem::resize_file(folder / "a.h5", size - 100);
  CHECK_THROWS_WITH(File::open(folder / "a.h5"),
                    contains(text("eof = ", size - 100)) && contains(text("stored_eof = ", size)));
  CHECK(code_of([&] { File::open(folder / "a.h5"); }) == ExitCode::bad_data);
}

TEST_CASE("a file whose writer was killed names h5clear, or what is missing") {
  const TemporaryFolder folder;
  test::leave_unfinished(folder / "new.h5", "inputs", "targets", 4, true);
  CHECK_THROWS_WITH(File::open(folder / "new.h5"), contains("h5clear") && contains("its writer was killed"));
  test::leave_unfinished(folder / "old.h5", "inputs", "targets", 4, false);
  const File file = File::open(folder / "old.h5");
  CHECK(file.dataset("inputs").rows() == 4);
  CHECK_THROWS_WITH(file.dataset("targets"), contains("old.h5, dataset targets: is missing"));
}

TEST_CASE("a file that exists is not overwritten, and a folder that is missing not made") {
  const TemporaryFolder folder;
  write_sample(folder / "a.h5");
  CHECK(code_of([&] { File::create(folder / "a.h5"); }) == ExitCode::cannot_create);
  CHECK(code_of([&] { File::create(folder / "none/a.h5", ExitCode::checkpoint_io); }) ==
        ExitCode::checkpoint_io);
  CHECK(File::open(folder / "a.h5").integer("classes") == 10);
}

TEST_CASE("a full disk is an error with the code that was asked for, and the next file is written again") {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> values(1 << 20, 1);
  const auto write = [&](const std::string& name) {
    File file = File::create(folder / name, ExitCode::checkpoint_io);
    file.create_dataset("values", Scalar::uint8, {1 << 20}).write(values.data());
    file.close();
  };
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit small { 1 << 16, before.rlim_max };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);  // stands for the disk: writes beyond it fail in the same way
  const ExitCode code = code_of([&] { write("a.h5"); });
  CHECK_THROWS_WITH(write("c.h5"), contains("c.h5, dataset values: cannot be written: File too large"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(code == ExitCode::checkpoint_io);
  write("b.h5");
  CHECK(File::open(folder / "b.h5").dataset("values").rows() == 1 << 20);
}

TEST_CASE("closing leaves a file that is complete and no longer held") {
  const TemporaryFolder folder;
  File file = File::create(folder / "a.h5");
  file.set_integer("classes", 3);
  file.close();
  CHECK(File::open(folder / "a.h5").integer("classes") == 3);
  file.close();  // again: nothing
}

TEST_CASE("data that lies in another file is refused before that file is looked at") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const std::string other = folder / "other.h5";
  const std::vector<std::uint8_t> values(4, 1);
  test::add_dataset(other, {"values", Scalar::uint8, {4}}, values.data());
  test::add_external_link(path, "external", other, "values");
  test::add_external_link(path, "outside", other, "/");
  test::add_soft_link(path, "soft", "/outside/values");
  test::add_virtual(path, "virtual", 4, folder / "missing.h5", "values");
  std::ofstream(folder / "raw.bin") << "abcd";
  test::add_external_storage(path, "stored", 4, folder / "raw.bin");
  const File file = File::open(path);
  CHECK_THROWS_WITH(file.dataset("external"), contains("dataset external: is a link into another file"));
  CHECK_THROWS_WITH(file.dataset("outside/values"), contains("is a link into another file"));
  CHECK_THROWS_WITH(file.dataset("soft"), contains("dataset soft: cannot be opened"));
  CHECK_THROWS_WITH(file.dataset("virtual"), contains("is a virtual dataset"));
  CHECK_THROWS_WITH(file.dataset("stored"), contains("keeps its data in external files"));
}

TEST_CASE("links within the file are followed") {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> values{1, 2, 3, 4};
  test::add_dataset(folder / "a.h5", {"values", Scalar::uint8, {4}}, values.data());
  test::add_soft_link(folder / "a.h5", "soft", "/values");
  CHECK(File::open(folder / "a.h5").dataset("soft").rows() == 4);
}

TEST_CASE("what holds no plain numbers is refused by its kind") {
  const TemporaryFolder folder;
  test::add_strings(folder / "a.h5", "names", 3);
  CHECK_THROWS_WITH(File::open(folder / "a.h5").dataset("names"), contains("dataset names: holds strings"));
}

TEST_CASE("chunk shape and filters are told, and a filter that is missing is marked") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const std::vector<std::uint8_t> values(64, 1);
  {
    const test::CountingFilter filter;
    test::add_dataset(path, {"values", Scalar::uint8, {16, 4}, false, {5, 2}, 4, true}, values.data());
  }
  const Dataset dataset = File::open(path).dataset("values");
  CHECK(dataset.layout() == Layout::chunked);
  CHECK(dataset.chunk() == Shape{5, 2});
  CHECK(dataset.offset() == -1);
  CHECK(dataset.is_complete());
  REQUIRE(dataset.filters().size() == 2);
  CHECK(dataset.filters()[0].available);
  CHECK(dataset.filters()[1].id == test::CountingFilter::kId);
  CHECK(dataset.filters()[1].name == "counting");
  CHECK_FALSE(dataset.filters()[1].available);
}

TEST_CASE("a dataset with parts that were never written is not complete") {
  const TemporaryFolder folder;
  test::add_dataset(folder / "a.h5", {"chunks", Scalar::uint8, {16}, false, {4}}, nullptr);
  test::add_dataset(folder / "a.h5", {"whole", Scalar::uint8, {16}}, nullptr);
  const File file = File::open(folder / "a.h5");
  CHECK_FALSE(file.dataset("chunks").is_complete());
  CHECK_FALSE(file.dataset("whole").is_complete());
}

TEST_CASE("a damaged compressed chunk is an error that names the rows") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  std::vector<std::uint8_t> values(4096);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * i >> 3);
  test::add_dataset(path, {"values", Scalar::uint8, {4096}, false, {4096}, 6}, values.data());
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path)) - 600);
  file.write(std::string(64, '\xff').data(), 64);
  file.close();
  const Dataset dataset = File::open(path).dataset("values");
  CHECK_THROWS_WITH(dataset.read(0, 4096, values.data()),
                    contains("dataset values, row 0") && contains("inflate"));
}

TEST_CASE("threads may use files at once, and none prints the library's messages") {
  const TemporaryFolder folder;
  write_sample(folder / "a.h5");
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 50; ++turn) {
        right += File::open(folder / "a.h5").dataset("large").rows() == 8192;
        right += code_of([&] { File::open(folder / "a.h5").dataset("none"); }) == ExitCode::bad_data;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 400);
  CHECK(library_version().substr(0, 2) != "0.");
}
