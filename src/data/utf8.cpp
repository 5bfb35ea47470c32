#include "data/tokenizer.hpp"

namespace lockstep::data {

namespace {

// Bytes of the sequence that begins with `lead`, and the range of its second byte, which excludes what is
// encoded longer than need be, surrogates, and what lies beyond U+10FFFF. No sequence begins with it: length
// 0.
struct Sequence {
  std::size_t length;
  unsigned char second_least;
  unsigned char second_most;
};

Sequence sequence_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xc2) return {0, 0, 0};
  if (lead < 0xe0) return {2, 0x80, 0xbf};
  if (lead < 0xf0) {
    return {3, static_cast<unsigned char>(lead == 0xe0 ? 0xa0 : 0x80),
            static_cast<unsigned char>(lead == 0xed ? 0x9f : 0xbf)};
  }
  if (lead < 0xf5) {
    return {4, static_cast<unsigned char>(lead == 0xf0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xf4 ? 0x8f : 0xbf)};
  }
  return {0, 0, 0};
}

}  // namespace

std::int64_t first_invalid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const Sequence sequence = sequence_of(byte(i));
    bool good = sequence.length > 0 && i + sequence.length <= text.size();
    for (std::size_t k = 1; good && k < sequence.length; ++k) {
      const unsigned char least = k == 1 ? sequence.second_least : 0x80;
      const unsigned char most = k == 1 ? sequence.second_most : 0xbf;
      good = byte(i + k) >= least && byte(i + k) <= most;
    }
    if (!good) return static_cast<std::int64_t>(i);
    i += sequence.length;
  }
  return -1;
}

}  // namespace lockstep::data
