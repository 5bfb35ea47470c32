#include "app/commands.hpp"
#include "train/run.hpp"

namespace lockstep::app {

Job train(const Arguments& arguments) {
  return job_on_ranks<config::TrainSettings>(arguments, train::run_training);
}

}  // namespace lockstep::app
