#include <fstream>
#include <functional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

namespace fs = std::filesystem;

void flip_byte(const std::string& path, std::int64_t place) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(place);
  const int byte = file.get();
  file.seekp(place);
  file.put(static_cast<char>(byte ^ 1));
}

struct Damage {
  std::string what;
  std::string file;  ///< that verify names
  std::function<void(const std::string& folder)> inflict;
};

/// Kinds of damage that power losses, full disks and people leave behind, to the last shard or the small
/// files.
std::vector<Damage> damages(int world_size) {
  const std::string shard = checkpoint::shard_name(world_size - 1, world_size);
  const std::string manifest = checkpoint::kManifestName;
  const std::string state = checkpoint::kStateName;
  const auto at = [](const std::string& name) {
    return [name](const std::string& folder) { return folder + "/" + name; };
  };
  return {
      {"shard cut off", shard,
       [=](auto& folder) { fs::resize_file(at(shard)(folder), fs::file_size(at(shard)(folder)) - 1); }},
      {"shard of zero bytes", shard, [=](auto& folder) { fs::resize_file(at(shard)(folder), 0); }},
      {"one bit of a shard", shard,
       [=](auto& folder) { flip_byte(at(shard)(folder), fs::file_size(at(shard)(folder)) - 3); }},
      {"shard gone", shard, [=](auto& folder) { fs::remove(at(shard)(folder)); }},
      {"shard a link", shard,
       [=](auto& folder) {
         fs::rename(at(shard)(folder), folder + "/other");
         fs::create_symlink("other", at(shard)(folder));
       }},
      {"one bit of the state", state, [=](auto& folder) { flip_byte(at(state)(folder), 4); }},
      {"manifest gone", manifest, [=](auto& folder) { fs::remove(at(manifest)(folder)); }},
      {"manifest empty", manifest, [=](auto& folder) { fs::resize_file(at(manifest)(folder), 0); }},
      {"manifest cut off", manifest,
       [=](auto& folder) { fs::resize_file(at(manifest)(folder), fs::file_size(at(manifest)(folder)) / 2); }},
      {"a digit of the manifest", manifest,
       [=](auto& folder) {
         const std::string words = read_text_file(at(manifest)(folder));
         flip_byte(at(manifest)(folder), static_cast<std::int64_t>(words.find("\"step\": ")) + 8);
       }},
  };
}

}  // namespace

TEST_CASE("every kind of damage is named by verify, passed over, and refused by load", "[ranks]") {
  for (const Damage& damage : damages(mpi::Communicator::world().size())) {
    INFO(damage.what);
    const RunFolder run;
    checkpoint::save(run.path(), sample(1), run.world(), 2);
    const std::string newest = checkpoint::save(run.path(), sample(2), run.world(), 2);
    run.on_root([&] { damage.inflict(newest); });

    const checkpoint::VerifyResult result = checkpoint::verify(newest);
    CHECK_FALSE(result.good());
    CHECK(result.file == damage.file);
    CHECK_THAT(result.problem, contains(damage.file));

    const auto found = checkpoint::find_latest(run.path(), run.world());
    REQUIRE(found);
    CHECK(found->step == 1);

    checkpoint::Snapshot loaded = sample(0, true);
    const auto [code, words] = error_of([&] { checkpoint::load(newest, loaded, run.world()); });
    CHECK((code == ExitCode::bad_data || code == ExitCode::input_missing));
    CHECK_THAT(words, contains(damage.file));
    CHECK(same_bits(loaded.arrays[0].values, at::zeros({25})));
    run.world().barrier();
  }
}

TEST_CASE("checkpoints of which none is complete are an error, not a fresh start", "[ranks]") {
  const RunFolder run;
  const std::string folder = checkpoint::save(run.path(), sample(1), run.world(), 2);
  run.on_root([&] { fs::remove(folder + "/" + checkpoint::kManifestName); });
  const auto [code, words] = error_of([&] { checkpoint::find_latest(run.path(), run.world()); });
  CHECK(code == ExitCode::bad_data);
  CHECK_THAT(words, contains("none is complete"));
}

TEST_CASE("a checkpoint of another model is refused with the tensor and both shapes", "[ranks]") {
  const RunFolder run;
  const std::string folder = checkpoint::save(run.path(), sample(1), run.world(), 2);
  const auto refused = [&](const std::function<void(checkpoint::Snapshot&)>& change) {
    checkpoint::Snapshot other = sample(0, true);
    change(other);
    const auto [code, words] = error_of([&] { checkpoint::load(folder, other, run.world()); });
    CHECK(code == ExitCode::configuration);
    CHECK(same_bits(other.arrays[0].values, at::zeros({25})));
    return words;
  };
  const std::string shapes = refused([](auto& other) { other.layout[0].shape = {5, 3}; });
  CHECK_THAT(shapes, contains("fc.weight") && contains("[5, 3]") && contains("[3, 5]"));
  CHECK_THAT(refused([](auto& other) { other.layout.pop_back(); }), contains("out.weight"));
  CHECK_THAT(refused([](auto& other) { other.layout[1].name = "fc.offset"; }), contains("fc.offset"));
  CHECK_THAT(refused([](auto& other) { other.arrays[2].name = "momentum"; }), contains("momentum"));
  CHECK_THAT(refused([](auto& other) { other.buffers[0].values = at::zeros({5}, at::kHalf); }),
             contains("norm.mean"));
}

TEST_CASE("a manifest that reaches outside its folder or beyond its arrays is refused") {
  checkpoint::Manifest manifest;
  manifest.world_size = 1;
  manifest.flat_size = 4;
  manifest.layout = {{"w", {4}, 0, 4}};
  manifest.files = {{"shard-00000-of-00001.h5", 1, "0"}, {"state.json", 1, "0"}};
  CHECK_NOTHROW(checkpoint::parse_manifest("m", checkpoint::to_text(manifest)));
  const auto refused = [](checkpoint::Manifest changed, auto change) {
    change(changed);
    return error_of([&] { checkpoint::parse_manifest("m", checkpoint::to_text(changed)); }).first ==
           ExitCode::bad_data;
  };
  CHECK(refused(manifest, [](auto& m) { m.files.push_back({"../../etc/passwd", 1, "0"}); }));
  CHECK(refused(manifest, [](auto& m) { m.files.push_back({"/etc/passwd", 1, "0"}); }));
  CHECK(refused(manifest, [](auto& m) { m.files.pop_back(); }));
  CHECK(refused(manifest, [](auto& m) { m.layout[0].begin = 1; }));
  CHECK(refused(manifest, [](auto& m) { m.layout[0].begin = -1; }));
  CHECK(refused(manifest, [](auto& m) { m.layout[0].count = 3; }));
  CHECK(refused(manifest, [](auto& m) { m.layout[0].shape = {std::int64_t{1} << 62, 4}; }));
  CHECK(refused(manifest, [](auto& m) { m.layout.push_back(m.layout[0]); }));
  CHECK(refused(manifest, [](auto& m) { m.world_size = -1; }));
}

TEST_CASE("a list tells sizes and problems, oldest first") {
  const RunFolder run;
  checkpoint::save(run.path(), sample(1), run.world(), 2);
  const std::string newest = checkpoint::save(run.path(), sample(2), run.world(), 2);
  fs::resize_file(newest + "/" + checkpoint::shard_name(0, 1), 10);
  const auto listings = checkpoint::list(run.path());
  REQUIRE(listings.size() == 2);
  CHECK(listings[0].step == 1);
  CHECK(listings[0].problem.empty());
  CHECK(listings[0].bytes > 300);
  CHECK_THAT(listings[1].problem, contains("has 10 bytes"));
}
