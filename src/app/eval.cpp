#include "app/commands.hpp"
#include "train/run.hpp"

namespace lockstep::app {

Job eval(const Arguments& arguments) {
  return job_on_ranks<config::EvalSettings>(arguments, train::run_evaluation);
}

}  // namespace lockstep::app
