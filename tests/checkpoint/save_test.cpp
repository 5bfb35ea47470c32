#include <csignal>
#include <fstream>
#include <limits>

#include <sys/resource.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "hdf5/file.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("what was saved is loaded bit for bit", "[ranks]") {
  const RunFolder run;
  const std::string folder = checkpoint::save(run.path(), sample(1200), run.world(), 2);
  CHECK(folder == run.path() + "/checkpoints/step-0000001200");
  checkpoint::Snapshot loaded = sample(0, true);
  checkpoint::load(folder, loaded, run.world());
  CHECK(same_as_sample(loaded, 1200));
}

TEST_CASE("the newest checkpoint is found, none is no error", "[ranks]") {
  const RunFolder run;
  CHECK_FALSE(checkpoint::find_latest(run.path(), run.world()));
  CHECK_FALSE(checkpoint::find_latest(run.path() + "/nowhere", run.world()));
  checkpoint::save(run.path(), sample(9), run.world(), 2);
  checkpoint::save(run.path(), sample(10), run.world(), 2);
  const auto found = checkpoint::find_latest(run.path(), run.world());
  REQUIRE(found);
  CHECK(found->step == 10);
  CHECK(found->folder == run.step(10));
}

TEST_CASE("fewer elements than ranks leave some shards empty and all bits in place", "[ranks]") {
  const RunFolder run;
  for (const std::int64_t size : {0, 1, 2, 6}) {
    checkpoint::Snapshot snapshot;
    snapshot.step = size;
    snapshot.flat_size = size;
    snapshot.layout = {{"w", {size}, 0, size}};
    snapshot.arrays = {{"masters", numbered(size, 5)}};
    const std::string folder = checkpoint::save(run.path(), snapshot, run.world(), 9);
    checkpoint::Snapshot loaded = snapshot;
    loaded.arrays = {{"masters", at::zeros({size})}};
    checkpoint::load(folder, loaded, run.world());
    CHECK(same_bits(loaded.arrays[0].values, snapshot.arrays[0].values));
  }
}

TEST_CASE("a shard is plain HDF5: contiguous float32 datasets of this rank's range", "[ranks]") {
  const RunFolder run;
  const std::string folder = checkpoint::save(run.path(), sample(3), run.world(), 2);
  const int rank = run.world().rank();
  const int size = run.world().size();
  const checkpoint::FlatRange range = checkpoint::range_of(25, rank, size);
  const hdf5::File file = hdf5::File::open(folder + "/" + checkpoint::shard_name(rank, size));
  const hdf5::Dataset masters = file.dataset("masters");
  CHECK(masters.layout() == hdf5::Layout::contiguous);
  CHECK(masters.shape() == hdf5::Shape{range.count()});
  at::Tensor values = at::empty({range.count()});
  masters.read(values.mutable_data_ptr());
  CHECK(same_bits(values, sample(3).arrays[0].values.narrow(0, range.begin, range.count()).contiguous()));
  CHECK(file.integer("flat_begin") == range.begin);
}

TEST_CASE("the same state gives byte-identical shards", "[ranks]") {
  const RunFolder run;
  const std::string first = checkpoint::save(run.path() + "/a", sample(3), run.world(), 2);
  const std::string second = checkpoint::save(run.path() + "/b", sample(3), run.world(), 2);
  const std::string shard = checkpoint::shard_name(run.world().rank(), run.world().size());
  CHECK(checkpoint::measure(first, shard).xxh3 == checkpoint::measure(second, shard).xxh3);
}

TEST_CASE("the oldest beyond those to keep go, two always stay, and the new one never goes", "[ranks]") {
  const RunFolder run;
  for (const std::int64_t step : {1, 2, 3}) checkpoint::save(run.path(), sample(step), run.world(), 1);
  CHECK_FALSE(run.has(1));
  CHECK(run.has(2));
  CHECK(run.has(3));
  checkpoint::save(run.path(), sample(1), run.world(), 2);  // resumed from an early step
  CHECK(run.has(1));
  checkpoint::save(run.path(), sample(6), run.world(), 0);  // 0 keeps all
  CHECK(checkpoint::list(run.path()).size() == 4);
  checkpoint::save(run.path(), sample(7), run.world(), 3);
  CHECK(checkpoint::list(run.path()).size() == 3);
}

TEST_CASE("a complete checkpoint of the same step is left as it is, a damaged one is moved aside",
          "[ranks]") {
  const RunFolder run;
  const std::string folder = checkpoint::save(run.path(), sample(5), run.world(), 2);
  run.on_root([&] { write_file_atomically(folder + "/note", "still here"); });
  checkpoint::save(run.path(), sample(5), run.world(), 2);
  CHECK(std::filesystem::exists(folder + "/note"));
  run.world().barrier();
  run.on_root([&] { std::filesystem::remove(folder + "/" + checkpoint::kManifestName); });
  checkpoint::save(run.path(), sample(5), run.world(), 2);
  CHECK(checkpoint::verify(folder).good());
  CHECK_FALSE(std::filesystem::exists(folder + "/note"));
  CHECK(std::filesystem::exists(run.path() + "/checkpoints/damaged-step-0000000005-1/note"));
}

TEST_CASE("leftovers of killed saves are no checkpoints and are removed", "[ranks]") {
  const RunFolder run;
  const std::string root = checkpoint::checkpoints_folder(run.path());
  run.on_root([&] {
    for (const char* name :
         {"/.partial-step-0000000007", "/.deleting-step-0000000001", "/step-7", "/elsewhere"}) {
      make_folder(root + name);
      write_file_atomically(root + name + "/shard-00000-of-00001.h5", "half");
    }
  });
  CHECK_FALSE(checkpoint::find_latest(run.path(), run.world()));
  checkpoint::remove_leftovers(run.path(), run.world());
  CHECK_FALSE(std::filesystem::exists(root + "/.partial-step-0000000007"));
  CHECK_FALSE(std::filesystem::exists(root + "/.deleting-step-0000000001"));
  CHECK(std::filesystem::exists(root + "/elsewhere"));
}

TEST_CASE("a killed save of the same step is in nobody's way", "[ranks]") {
  const RunFolder run;
  run.on_root([&] {
    const std::string partial = checkpoint::checkpoints_folder(run.path()) + "/.partial-step-0000000007";
    make_folder(partial);
    write_file_atomically(partial + "/" + checkpoint::shard_name(0, run.world().size()), "half");
  });
  CHECK(checkpoint::verify(checkpoint::save(run.path(), sample(7), run.world(), 2)).good());
}

TEST_CASE("masters that are not finite are refused with the tensor's name on all ranks", "[ranks]") {
  const RunFolder run;
  const std::string before = checkpoint::save(run.path(), sample(1), run.world(), 2);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    checkpoint::Snapshot snapshot = sample(2);
    snapshot.arrays[0].values[18] = bad;
    const auto [code, words] = error_of([&] { checkpoint::save(run.path(), snapshot, run.world(), 2); });
    CHECK(code == ExitCode::internal);
    CHECK_THAT(words, contains("fc.bias"));
    CHECK_FALSE(run.has(2));
    CHECK(checkpoint::verify(before).good());
  }
}

TEST_CASE("a rank that cannot write fails the save on all ranks and harms nothing", "[ranks]") {
  const RunFolder run;
  const std::string before = checkpoint::save(run.path(), sample(1), run.world(), 2);
  checkpoint::Snapshot large;
  large.step = 2;
  large.flat_size = 1 << 20;
  large.layout = {{"w", {1 << 20}, 0, 1 << 20}};
  large.arrays = {{"masters", at::ones({1 << 20})}};
  const int failing = run.world().size() - 1;
  rlimit usual{};
  getrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails as on a full disk
  if (run.world().rank() == failing) {
    const rlimit small{64 << 10, usual.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  const auto [code, words] = error_of([&] { checkpoint::save(run.path(), large, run.world(), 2); });
  setrlimit(RLIMIT_FSIZE, &usual);
  CHECK(code == ExitCode::checkpoint_io);
  CHECK_THAT(words, contains(checkpoint::shard_name(failing, run.world().size())));
  run.world().barrier();
  CHECK_FALSE(run.has(2));
  CHECK_FALSE(std::filesystem::exists(run.path() + "/checkpoints/.partial-step-0000000002"));
  CHECK(checkpoint::verify(before).good());
  run.world().barrier();
  CHECK(checkpoint::verify(checkpoint::save(run.path(), large, run.world(), 2)).good());
}

TEST_CASE("a run folder that cannot hold checkpoints fails the save on all ranks", "[ranks]") {
  const RunFolder run;
  run.on_root([&] { write_file_atomically(run.path() + "/file", ""); });
  const auto [code, words] =
      error_of([&] { checkpoint::save(run.path() + "/file", sample(1), run.world(), 2); });
  CHECK(code == ExitCode::checkpoint_io);
  CHECK_THAT(words, contains(run.path() + "/file"));
}

TEST_CASE("a checkpoint larger than the disk is refused before a byte is written") {
  const RunFolder run;
  checkpoint::Snapshot snapshot = sample(1);
  snapshot.flat_size = std::int64_t{1} << 50;
  snapshot.arrays = {{"masters", at::zeros({1}).expand({snapshot.flat_size})}};
  const auto [code, words] = error_of([&] { checkpoint::save(run.path(), snapshot, run.world(), 2); });
  CHECK(code == ExitCode::checkpoint_io);
  CHECK_THAT(words, contains("the checkpoint needs 4096.00 TiB"));
}
