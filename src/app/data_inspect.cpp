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

std::string targets_of(const data::DataSet& set) {
  if (!set.tokens())
    return text("  targets      ", hdf5::name(set.target_scalar()), ", ", set.classes(), " classes\n");
  const std::string& hash = set.tokenizer_hash();
  return text("  predicted    ", set.rows() * set.targets_per_row(), " tokens, ", set.targets_per_row(),
              " a row\n  vocabulary   ", set.classes(), ", tokenizer ", hash.empty() ? "not known" : hash,
              "\n");
}

int run(const config::DataInspectSettings& settings) {
  const auto set = data::DataSet::open(settings.path);
  std::cout << settings.path << "\n  samples      " << set.rows() << " in "
            << count_of(static_cast<std::int64_t>(set.shards().size()), "shard", "shards") << ", "
            << format_bytes(set.decoded_bytes()) << " decoded\n  "
            << (set.tokens() ? "tokens       " : "inputs       ") << hdf5::name(set.input_scalar()) << " "
            << hdf5::to_text(set.stored_shape()) << ", " << format_bytes(set.input_row_bytes()) << " each\n"
            << targets_of(set) << "  row blocks   " << set.row_blocks().count() << "\n  fingerprint  "
            << hex(set.fingerprint()) << "\n"
            << std::fixed << std::setprecision(4);
  for (std::size_t channel = 0; channel < set.mean().size(); ++channel) {
    std::cout << "  channel " << channel << "    mean " << set.mean()[channel] << ", standard deviation "
              << set.std_deviation()[channel] << "\n";
  }
  for (const auto& shard : set.shards()) {
    std::cout << shard.path << ": " << shard.rows << " samples, " << format_bytes(shard.file_bytes)
              << (set.tokens() ? ", tokens " : ", inputs ") << storage_of(shard.inputs);
    if (!set.tokens()) std::cout << ", targets " << storage_of(shard.targets);
    std::cout << "\n";
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace

Job data_inspect(const Arguments& arguments) {
  return job_alone<config::DataInspectSettings>(arguments, run);
}

}  // namespace lockstep::app
