#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace attune {

/// The byte-level alphabet of GPT-2: every byte has a visible character, so that token texts are plain text.
const std::array<std::string, 256>& byte_characters();

/// The token of one byte where a vocabulary falls back to bytes: "<0x0A>".
std::string fallback_token(unsigned char byte);

/// The bytes a token's text stands for; nothing when a character is not in the alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view text);
/// Appends them; false, with `out` as it was, when a character is not in the alphabet.
bool append_bytes_of_alphabet(std::string_view text, std::string& out);

}  // namespace attune
