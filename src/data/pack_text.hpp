#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// How text files become shards of token rows. Each file is one document and gets the end of a text after it;
/// the documents stand one after the other, in the order of their names, and are cut into rows.
struct PackText {
  std::string input;   ///< one file of any name, or a folder of *.txt; plain or gzip, told by content
  std::string output;  ///< folder of the training shards
  std::string
      validation_output;  ///< folder of the validation shard; needed when validation_fraction is above 0
  std::string tokenizer = "bytes";  ///< bytes; sentencepiece: trained on the text; else a SentencePiece model
                                    ///< file, or a folder that holds a tokenizer.json
  std::int64_t vocabulary = 0;      ///< of sentencepiece; 0 for the others, which bring their own
  std::int64_t sequence_length = 0;  ///< T: a row is T + 1 tokens
  std::int64_t shards = 1;
  double validation_fraction = 0;  ///< of all rows, in [0, 1): the last ones, as the text stands
  bool overwrite = false;          ///< replace shards that are there
};

struct PackTextResult {
  std::int64_t documents = 0;
  std::int64_t empty_files = 0;  ///< passed over
  std::int64_t text_bytes = 0;
  std::int64_t tokens = 0;           ///< ends of texts included
  std::int64_t tokens_left_out = 0;  ///< at the end, too few for a row
  std::int64_t train_rows = 0;
  std::int64_t validation_rows = 0;
  std::string tokenizer_kind;
  std::int64_t vocabulary = 0;
  std::vector<std::string> files;  ///< as written, training shards first
};

/// Writes `train-00000-of-00004.h5` ... and `validation-00000-of-00001.h5`, and the tokenizer beside each.
/// The same input and settings give byte-identical files. Folders appear complete or not at all. Holds all
/// tokens in memory. Throws DataError (missing or empty input, a text shorter than one row, a text or
/// tokenizer that is none) and UsageError (settings; cannot_create when a folder holds shards already and
/// overwrite is off, or holds other files).
PackTextResult pack_text(const PackText& settings);

}  // namespace lockstep::data
