#include "data/pack_text.hpp"

#include <iostream>

#include "app/commands.hpp"
#include "base/text.hpp"

namespace lockstep::app {

namespace {

int run(const config::PackTextSettings& settings) {
  const data::PackTextResult result = data::pack_text({.input = settings.input,
                                                       .output = settings.output,
                                                       .validation_output = settings.validation_output,
                                                       .tokenizer = settings.tokenizer,
                                                       .vocabulary = settings.vocabulary,
                                                       .sequence_length = settings.sequence_length,
                                                       .shards = settings.shards,
                                                       .validation_fraction = settings.validation_fraction,
                                                       .overwrite = settings.overwrite});
  std::cout << "read " << result.documents << (result.documents == 1 ? " document, " : " documents, ")
            << format_bytes(result.text_bytes);
  if (result.empty_files > 0) std::cout << "; passed over " << result.empty_files << " empty files";
  std::cout << "\n"
            << result.tokens << " tokens (" << result.tokenizer_kind << ", vocabulary " << result.vocabulary
            << "), " << result.tokens_left_out << " at the end left out\npacked " << result.train_rows
            << " training rows";
  if (result.validation_rows > 0) std::cout << " and " << result.validation_rows << " validation rows";
  std::cout << " of " << settings.sequence_length << " tokens\n";
  for (const auto& file : result.files) std::cout << file << "\n";
  std::cout << std::flush;
  return 0;
}

}  // namespace

Job pack_text(const Arguments& arguments) {
  return job_alone<config::PackTextSettings>(arguments, run);
}

}  // namespace lockstep::app
