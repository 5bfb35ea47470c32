#include <iomanip>
#include <iostream>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "config/shape.hpp"
#include "data/pack.hpp"

namespace lockstep::app {

namespace {

data::PackCsv order_of(const config::PackCsvSettings& settings) {
  if (settings.test_output.empty() != (settings.test_count == 0)) {
    throw UsageError(text("--test-output ",
                          settings.test_output.empty() ? "(not given)" : settings.test_output,
                          " and --test-count ", settings.test_count, " go together; give both or neither"));
  }
  return {.input = settings.input,
          .output = settings.output,
          .test_output = settings.test_output,
          .shape = config::read_shape(settings.shape, "--shape"),
          .label_column = settings.label_column,
          .classes = settings.classes,
          .shards = settings.shards,
          .test_count = settings.test_count,
          .seed = settings.seed,
          .overwrite = settings.overwrite};
}

int run(const config::PackCsvSettings& settings) {
  const data::PackResult result = data::pack_csv(order_of(settings));
  if (result.skipped_header) std::cout << "line 1 is a header and was skipped\n";
  std::cout << "packed " << result.train_rows << " training samples";
  if (result.test_rows > 0) std::cout << " and " << result.test_rows << " test samples";
  std::cout << " of " << result.classes << " classes\n" << std::fixed << std::setprecision(4);
  for (std::size_t channel = 0; channel < result.mean.size(); ++channel) {
    std::cout << "channel " << channel << ": mean " << result.mean[channel] << ", standard deviation "
              << result.std_deviation[channel] << "\n";
  }
  for (const auto& file : result.files) std::cout << file << "\n";
  std::cout << std::flush;
  return 0;
}

}  // namespace

Job pack_csv(const Arguments& arguments) {
  return job_alone<config::PackCsvSettings>(arguments, run);
}

}  // namespace lockstep::app
