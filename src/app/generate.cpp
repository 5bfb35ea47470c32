#include "train/generate.hpp"

#include "app/commands.hpp"

namespace lockstep::app {

Job generate(const Arguments& arguments) {
  return job_on_ranks<config::GenerateSettings>(arguments, train::run_generation);
}

}  // namespace lockstep::app
