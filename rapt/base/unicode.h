// SPDX-License-Identifier: Apache-2.0
// UTF-8 and the properties of characters that tokenizers ask for. Tables: make_unicode.py.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rapt::unicode {

// clang-format off
enum Category : std::uint8_t {
  Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp, Cc, Cf,
  Cs, Co, Cn
};
// clang-format on

struct Char {
  std::uint32_t code = 0;  // U+FFFD for a byte that starts no valid character
  std::uint32_t length = 0;
  bool valid = true;
};
constexpr std::uint32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

// The character at `at` (which is inside the text). Overlong forms, surrogates and values over 10FFFF are
// invalid: one byte long.
Char read(std::string_view text, std::size_t at);
void append(std::string& out, std::uint32_t code);
std::vector<std::uint32_t> codes(std::string_view text);
std::string text(const std::vector<std::uint32_t>& codes);

Category category(std::uint32_t code);
inline bool is_letter(std::uint32_t c) { return category(c) <= Lo; }
inline bool is_mark(std::uint32_t c) {
  const Category k = category(c);
  return k >= Mn && k <= Me;
}
inline bool is_number(std::uint32_t c) {
  const Category k = category(c);
  return k >= Nd && k <= No;
}
inline bool is_punctuation(std::uint32_t c) {
  const Category k = category(c);
  return k >= Pc && k <= Po;
}
inline bool is_symbol(std::uint32_t c) {
  const Category k = category(c);
  return k >= Sm && k <= So;
}
bool is_space(std::uint32_t code);  // White_Space: \s of the pattern engines
// \w: letters, marks, decimal digits and letter numbers, connectors, circled letters
bool is_word(std::uint32_t code);
inline bool is_ascii_punctuation(std::uint32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// As the crates behind Hugging Face's tokenizers know them, of Unicode 8.0 (BERT) and 9.0 (normal forms).
// Right for punctuation, marks without width and format characters.
Category category8(std::uint32_t code);
bool is_mark9(std::uint32_t code);

// Full mapping, character by character (U+0130 becomes two).
void lower(std::vector<std::uint32_t>& out, std::uint32_t code);
std::uint32_t upper(std::uint32_t code);               // simple mapping: one character each
int digit(std::uint32_t code);                         // 0 to 9 of a decimal digit of any script; -1: none

enum class Form { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, Form form);  // of Unicode 9.0; invalid bytes become U+FFFD
std::vector<std::uint32_t> decompose(const std::vector<std::uint32_t>& codes, bool compatible);

// Where the grapheme cluster that begins at `at` ends: characters a reader takes for one. Enough of the
// rules for clusters below six bytes, which is where the caller (the charsmap as Hugging Face applies
// it) asks.
std::size_t grapheme_end(std::string_view text, std::size_t at);

}  // namespace rapt::unicode
