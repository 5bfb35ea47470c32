#include <algorithm>
#include <iostream>
#include <numeric>

#include "app/commands.hpp"
#include "base/clock.hpp"
#include "base/text.hpp"
#include "data/reader.hpp"

namespace lockstep::app {

namespace {

constexpr std::int64_t kReadBytes = std::int64_t{16} << 20;  // of rows asked for together

int run(const config::DataVerifySettings& settings) {
  const Stopwatch clock;
  const auto set =
      data::DataSet::open(settings.path);  // checks types, shapes and every label; reading checks tokens
  data::Rows reader(set, data::Access::blocks);
  const std::int64_t together =
      std::max<std::int64_t>(1, kReadBytes / std::max<std::int64_t>(1, set.input_row_bytes()));
  std::vector<std::byte> inputs(static_cast<std::size_t>(together * set.input_row_bytes()));
  std::vector<std::int64_t> targets(static_cast<std::size_t>(together));
  std::vector<std::int64_t> rows;
  for (std::int64_t first = 0; first < set.rows(); first += together) {
    rows.resize(static_cast<std::size_t>(std::min(together, set.rows() - first)));
    std::iota(rows.begin(), rows.end(), first);
    reader.read(rows, inputs.data(), targets.data());
  }
  std::cout << settings.path << ": all " << set.rows() << " samples in "
            << count_of(static_cast<std::int64_t>(set.shards().size()), "shard", "shards") << " can be read, "
            << (set.tokens() ? "tokens" : "labels") << " are in 0.." << set.classes() - 1 << "; "
            << format_bytes(reader.counts().bytes) << " in " << format_seconds(clock.seconds()) << std::endl;
  return 0;
}

}  // namespace

Job data_verify(const Arguments& arguments) {
  return job_alone<config::DataVerifySettings>(arguments, run);
}

}  // namespace lockstep::app
