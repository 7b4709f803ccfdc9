#pragma once

#include "attune/utf8.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace attune {

/// UTF-8 and Unicode for the whole house: tokenizers, templates, routing keywords and module names share this file.

struct CodePoint {
    char32_t value = 0;
    std::size_t bytes = 1;
};

/// The code point that begins at `at`; text must be valid UTF-8 there.
CodePoint code_point_at(std::string_view text, std::size_t at);
/// The code point that ends right before `end` (> 0); text must be valid UTF-8.
CodePoint code_point_before(std::string_view text, std::size_t end);
void append_utf8(std::string& out, char32_t code_point);
std::size_t count_code_points(std::string_view text);

/// How many bytes of `text` are sure: all but an unfinished, so far well-formed character at the end.
std::size_t complete_utf8_bytes(std::string_view text);

/// Bytes in pieces -> text, as Rust's from_utf8_lossy and Python's errors="replace" give for the whole: one U+FFFD for
/// each maximal ill-formed part. Never holds more than three bytes back.
class LossyUtf8 {
public:
    void push(std::string_view bytes, std::string& out);
    /// An unfinished character becomes one U+FFFD.
    void flush(std::string& out);

private:
    std::string held_;
};

enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// text must be valid UTF-8; what is not comes back unchanged.
std::string normalize(std::string_view text, NormalForm form);
/// NFKC, then full case folding, then NFKC: two texts that a reader calls equal become equal bytes.
std::string fold_for_matching(std::string_view text);

bool is_white_space(char32_t code_point);  ///< property White_Space
bool is_numeric(char32_t code_point);      ///< Nd, Nl, No
bool is_letter(char32_t code_point);       ///< L*
bool is_mark(char32_t code_point);         ///< M*
bool is_punctuation(char32_t code_point);  ///< P*
/// What \w means in Unicode regular expressions: alphabetic, marks, decimal digits, connectors, joiners.
bool is_word_character(char32_t code_point);
/// A letter, mark or digit of a script that puts spaces between words. Han, kana, Thai, Lao, Khmer, Myanmar and the
/// like have no word boundaries to look for.
bool is_spaced_script_letter(char32_t code_point);

}  // namespace attune
