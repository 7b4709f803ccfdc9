#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// The forms in which rules look at a text. All of them are valid UTF-8 and hold no characters that show nothing (soft
/// hyphens, zero-width spaces and joiners, variation selectors): those must not hide a word from its rule.

/// After NFKC and case folding: what keywords, tags and the classifier compare.
std::string comparable(std::string_view text);
/// After NFKC only: what patterns search.
std::string searchable(std::string_view text);

/// The first `limit` bytes, whole characters only.
std::string_view beginning_of(std::string_view text, std::size_t limit);

/// A character of a script that puts no spaces between words: each is a word of its own.
bool is_word_by_itself(char32_t character);

/// Where the first, second, ... word ends, for at most `most` words. A word is a run of letters, digits and marks, or
/// one character of a script without spaces (Chinese, Japanese, Thai).
std::vector<std::size_t> word_ends(std::string_view text, std::size_t most);

}  // namespace attune
