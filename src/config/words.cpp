#include "config/flags.hpp"

// In the order of the enumerations in config/settings.hpp.
namespace lockstep::config {

using Words = std::vector<std::string>;

const Words& words(Precision) {
  static const Words all = {"fp32", "tf32", "bf16", "fp16"};
  return all;
}

const Words& words(DeviceKind) {
  static const Words all = {"auto", "cuda", "cpu"};
  return all;
}

const Words& words(GraphMode) {
  static const Words all = {"auto", "on", "off"};
  return all;
}

const Words& words(OverlapMode) {
  static const Words all = {"auto", "on", "off"};
  return all;
}

const Words& words(OptimizerKind) {
  static const Words all = {"adamw", "sgd"};
  return all;
}

const Words& words(ScheduleKind) {
  static const Words all = {"constant", "linear", "cosine", "warmup-stable-decay"};
  return all;
}

const Words& words(ShuffleMode) {
  static const Words all = {"auto", "full", "blocks", "none"};
  return all;
}

const Words& words(ProgressMode) {
  static const Words all = {"auto", "terminal", "plain", "off"};
  return all;
}

const Words& words(KernelChoice) {
  static const Words all = {"auto", "fused", "reference"};
  return all;
}

}  // namespace lockstep::config
