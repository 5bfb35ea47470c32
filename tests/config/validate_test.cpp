#include "config/validate.hpp"

#include <limits>

#include "config/message.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using namespace lockstep::config;
using lockstep::test::failure;

namespace {

TrainSettings good() {
  TrainSettings settings;
  settings.model.name = "lenet";
  settings.data.path = "data";
  settings.run.folder = "run";
  settings.run.steps = 100;
  settings.global_batch = 64;
  return settings;
}

template <class Change>
std::string refused(Change change, int world_size = 1) {
  TrainSettings settings = good();
  change(settings);
  return failure([&] { validate(settings, world_size); });
}

}  // namespace

TEST_CASE("plain settings are valid at any world size") {
  for (const int ranks : {1, 2, 3, 64, 1000}) CHECK(refused([](auto&) {}, ranks) == "");
}

TEST_CASE("required settings that are missing are named together") {
  CHECK(failure([] { validate(TrainSettings{}, 1); }) ==
        "64 lockstep train needs --model, --data, --run, --global-batch");
  CHECK(failure([] { validate(EvalSettings{}); }) == "64 lockstep eval needs --run, --data");
}

TEST_CASE("a text is written from one prompt") {
  GenerateSettings settings;
  CHECK(failure([&] { validate(settings); }) == "64 lockstep generate needs --run");
  settings.run_folder = "run";
  CHECK(failure([&] { validate(settings); }) == "");
  settings.prompt = "Once";
  settings.prompt_file = "p.txt";
  CHECK(failure([&] { validate(settings); }) ==
        "64 --prompt Once and --prompt-file p.txt both give the text to go on from; give one");
  settings.prompt = "";
  settings.temperature = -1;
  CHECK(failure([&] { validate(settings); }) == "64 --temperature: '-1' is not allowed; give a number >= 0");
}

TEST_CASE("ranges hold for settings that no parser made") {
  CHECK(refused([](auto& s) { s.global_batch = -4; }) ==
        "64 --global-batch: '-4' is not allowed; give an integer >= 1");
  CHECK(refused([](auto& s) { s.optimizer.lr = std::numeric_limits<double>::quiet_NaN(); }) ==
        "64 --lr: 'nan' is not allowed; give a number >= 0");
  CHECK(refused([](auto& s) { s.optimizer.clip_norm = std::numeric_limits<double>::infinity(); }) ==
        "64 --clip-norm: 'inf' is not allowed; give a number >= 0");
}

TEST_CASE("a run has one length") {
  CHECK(refused([](auto& s) { s.run.steps = 0; }) ==
        "64 the run has no length; give --steps N or --epochs N");
  CHECK(refused([](auto& s) { s.run.epochs = 3; }) ==
        "64 --steps 100 and --epochs 3 both give the run a length; give one");
  CHECK(refused([](auto& s) { s.run.steps = 0, s.run.epochs = 3; }) == "");
}

TEST_CASE("a global batch that ranks and micro-batches do not divide is refused with the nearest that fit") {
  const auto split = [](std::int64_t global, std::int64_t micro, int ranks) {
    return refused([&](auto& s) { s.global_batch = global, s.micro_batch = micro; }, ranks);
  };
  CHECK(split(64, 16, 4) == "");
  CHECK(split(100, 16, 4) ==
        "64 --global-batch 100 is not a multiple of 64 = 4 ranks x --micro-batch 16; 64 and 128 fit");
  CHECK(split(7, 8, 1) ==
        "64 --global-batch 7 is not a multiple of 8 = 1 rank x --micro-batch 8; 8 is the smallest that fits");
  CHECK(split(7, 0, 4) == "");
  CHECK(split(7, std::numeric_limits<std::int64_t>::max(), 4)
            .starts_with("64 --micro-batch 9223372036854775807 times 4"));
}

TEST_CASE("warm-up and decay fit into the schedule") {
  CHECK(refused([](auto& s) { s.schedule.warmup_steps = 100; }) == "");
  CHECK(refused([](auto& s) { s.schedule.warmup_steps = 101; }) ==
        "64 --warmup-steps 101 is longer than the schedule, --steps 100");
  CHECK(refused([](auto& s) { s.schedule.steps = 50, s.schedule.warmup_steps = 51; }) ==
        "64 --warmup-steps 51 is longer than the schedule, --schedule-steps 50");
  const auto stable = [](std::int64_t warmup, std::int64_t decay) {
    return refused([&](auto& s) {
      s.schedule.kind = ScheduleKind::warmup_stable_decay;
      s.schedule.warmup_steps = warmup;
      s.schedule.decay_steps = decay;
    });
  };
  CHECK(stable(50, 50) == "");
  CHECK(stable(50, 51) ==
        "64 --warmup-steps 50 and --decay-steps 51 together are longer than the schedule, --steps 100");
}

TEST_CASE("a flag of another schedule is refused, not ignored") {
  CHECK(refused([](auto& s) { s.schedule.kind = ScheduleKind::cosine, s.schedule.decay_steps = 5; }) ==
        "64 --decay-steps 5 belongs to --schedule warmup-stable-decay, but the schedule is cosine");
  CHECK(refused([](auto& s) { s.schedule.final_fraction = 0.5; }) ==
        "64 --final-lr-fraction 0.5 belongs to a schedule that decays, but the schedule is constant");
}

TEST_CASE("the first loss scale lies between floor and ceiling") {
  CHECK(refused([](auto& s) { s.scaler.min_scale = 131072; }) ==
        "64 --init-scale 65536 is not between --min-scale 131072 and --max-scale 3.40282e+38");
  CHECK(refused([](auto& s) { s.scaler.max_scale = 1024; }) ==
        "64 --init-scale 65536 is not between --min-scale 0 and --max-scale 1024");
  CHECK(refused([](auto& s) { s.scaler.max_scale = 1024, s.scaler.min_scale = 1; }) ==
        "64 --init-scale 65536 is not between --min-scale 1 and --max-scale 1024");
  CHECK(refused([](auto& s) { s.scaler.max_scale = 65536, s.scaler.min_scale = 65536; }) == "");
}

TEST_CASE("modes that the device does not have are refused") {
  CHECK(refused([](auto& s) { s.device = DeviceKind::cpu, s.precision = Precision::tf32; }) ==
        "64 --precision tf32 is a mode of GPUs; with --device cpu use fp32");
  CHECK(refused([](auto& s) { s.device = DeviceKind::cpu, s.graph = GraphMode::on; }) ==
        "64 --graph on captures a CUDA graph, which --device cpu cannot; use --graph auto");
  CHECK(refused([](auto& s) { s.run.eval_every = 5; }) == "64 --eval-every 5 needs --eval-data PATH");
}
