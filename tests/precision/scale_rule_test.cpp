#include <cmath>
#include <limits>

#include "precision/step_state.hpp"
#include "support/catch.hpp"

using namespace lockstep::precision;

namespace {

StepState scaled(float scale, int hysteresis = 1) {
  StepState state{};
  state.loss_scale = scale;
  state.hysteresis_left = hysteresis;
  return state;
}

void pass(StepState& state, const ScaleRule& rule, bool overflow) {
  state.found_nonfinite = overflow ? 1 : 0;
  state.global_count = 1;
  end_step(state, rule);
}

}  // namespace

TEST_CASE("an overflow halves the scale at once and restarts the count of clean steps") {
  ScaleRule rule;
  rule.growth_interval = 3;
  StepState state = scaled(1024);
  pass(state, rule, false);
  pass(state, rule, false);
  pass(state, rule, true);
  CHECK(state.loss_scale == 512);
  CHECK(state.growth_tracker == 0);
  CHECK(state.skipped_steps == 1);
  CHECK(state.applied_steps == 2);
  for (int i = 0; i < 3; ++i) pass(state, rule, false);
  CHECK(state.loss_scale == 1024);
}

TEST_CASE("the scale grows only to finite values, however long the run (P4)") {
  ScaleRule rule;
  rule.growth_interval = 1;
  StepState state = scaled(65536);
  for (int i = 0; i < 500; ++i) pass(state, rule, false);
  CHECK(std::isfinite(state.loss_scale));
  CHECK(state.loss_scale == std::ldexp(1.0f, 127));
}

TEST_CASE("floor and ceiling hold") {
  ScaleRule rule;
  rule.growth_interval = 1;
  rule.min_scale = 4;
  rule.max_scale = 64;
  StepState state = scaled(16);
  for (int i = 0; i < 9; ++i) pass(state, rule, false);
  CHECK(state.loss_scale == 64);
  for (int i = 0; i < 9; ++i) pass(state, rule, true);
  CHECK(state.loss_scale == 4);
  CHECK(state.consecutive_skips == 9);
}

TEST_CASE("hysteresis tolerates overflows until it is used up, and growth refills it") {
  ScaleRule rule;
  rule.growth_interval = 2;
  rule.hysteresis = 3;
  StepState state = scaled(1024, rule.hysteresis);
  pass(state, rule, true);
  pass(state, rule, true);
  CHECK(state.loss_scale == 1024);
  pass(state, rule, true);
  CHECK(state.loss_scale == 512);
  pass(state, rule, true);
  CHECK(state.loss_scale == 256);
  pass(state, rule, false);
  pass(state, rule, false);
  CHECK(state.loss_scale == 512);
  CHECK(state.hysteresis_left == 3);
}

TEST_CASE("the schedule follows applied steps, not attempted ones (P5)") {
  const float rates[] = {1, 2, 3, 4};
  ScaleRule rule;
  StepState state = scaled(1);
  for (const bool overflow : {false, true, true, false}) {
    conclude_gradients(state, 1, overflow, 0, rates, 4);
    pass(state, rule, overflow);
  }
  conclude_gradients(state, 1, false, 0, rates, 4);
  CHECK(state.learning_rate == 3);
  state.applied_steps = 99;
  conclude_gradients(state, 1, false, 0, rates, 4);
  CHECK(state.learning_rate == 4);
}

TEST_CASE("norm and clipping are in true units (P6)") {
  const float rates[] = {1};
  StepState state = scaled(65536);
  conclude_gradients(state, 5.0 * 65536, false, 2.0f, rates, 1);
  CHECK(state.gradient_norm == Approx(5));
  CHECK(state.gradient_factor * 65536 == Approx(2.0 / 5));
  conclude_gradients(state, 1.0 * 65536, false, 2.0f, rates, 1);
  CHECK(state.gradient_factor == 1.0f / 65536);
}

TEST_CASE("without a dynamic scale it stays one, and non-finite steps are skipped all the same") {
  ScaleRule rule;
  rule.dynamic = false;
  StepState state = scaled(1);
  pass(state, rule, true);
  CHECK(state.loss_scale == 1);
  CHECK(state.skipped_steps == 1);
}
