#include <iomanip>
#include <iostream>

#include "app/commands.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "data/shards.hpp"

namespace lockstep::app {

namespace {

std::string storage_of(const data::Storage& storage) {
  if (storage.offset >= 0) return "contiguous";
  if (storage.chunks_per_block == 1) return text("chunks of ", storage.block_rows, " rows");
  return text("chunk rows of ", storage.block_rows, " rows, ", storage.chunks_per_block, " chunks each");
}

int run(const config::DataInspectSettings& settings) {
  const auto set = data::DataSet::open(settings.path);
  std::cout << settings.path << "\n  samples      " << set.rows() << " in " << set.shards().size()
            << (set.shards().size() == 1 ? " shard, " : " shards, ") << format_bytes(set.decoded_bytes())
            << " decoded\n  inputs       " << hdf5::name(set.input_scalar()) << " "
            << hdf5::to_text(set.input_shape()) << ", " << format_bytes(set.input_row_bytes())
            << " each\n  targets      " << hdf5::name(set.target_scalar()) << ", " << set.classes()
            << " classes\n  row blocks   " << set.row_blocks().count() << "\n  fingerprint  "
            << hex(set.fingerprint()) << "\n"
            << std::fixed << std::setprecision(4);
  for (std::size_t channel = 0; channel < set.mean().size(); ++channel) {
    std::cout << "  channel " << channel << "    mean " << set.mean()[channel] << ", standard deviation "
              << set.std_deviation()[channel] << "\n";
  }
  for (const auto& shard : set.shards()) {
    std::cout << shard.path << ": " << shard.rows << " samples, " << format_bytes(shard.file_bytes)
              << ", inputs " << storage_of(shard.inputs) << ", targets " << storage_of(shard.targets) << "\n";
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace

Job data_inspect(const Arguments& arguments) {
  return job_alone<config::DataInspectSettings>(arguments, run);
}

}  // namespace lockstep::app
