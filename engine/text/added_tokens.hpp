#pragma once

#include "attune/ids.hpp"
#include "engine/text/normalizer.hpp"
#include "engine/text/tokenizer.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// Finds added tokens in a text: leftmost, longest. One instance holds those matched in the untouched text, another
/// those matched after normalization.
class AddedTokenMatcher {
public:
    /// `contents[i]` is what `tokens[i]` looks like in the text to be searched.
    AddedTokenMatcher(std::vector<const AddedToken*> tokens, const std::vector<std::string>& contents);

    struct Part {
        std::size_t begin = 0;
        std::size_t end = 0;
        const AddedToken* token = nullptr;  ///< null: text between tokens
    };
    /// How much of [begin, end) may not hold special tokens.
    enum class Literal : std::uint8_t { none, partly, wholly };
    using LiteralAt = std::function<Literal(std::size_t begin, std::size_t end)>;

    bool empty() const { return tokens_.empty(); }
    /// `literal_at` empty: special tokens count everywhere.
    std::vector<Part> split(std::string_view text, const LiteralAt& literal_at) const;

private:
    struct Node {
        std::vector<std::pair<unsigned char, std::int32_t>> next;  // few branches, so scanned
        std::int32_t token = -1;
        std::int32_t child(unsigned char byte) const;
    };
    struct Found {
        const AddedToken* token = nullptr;
        std::size_t end = 0;
        bool plain = false;  ///< a special token inside literal text: its characters are taken as text
    };
    Found match_at(std::string_view text, std::size_t begin, const LiteralAt& literal_at) const;

    std::vector<const AddedToken*> tokens_;
    std::vector<Node> nodes_;
    std::array<bool, 256> starts_{};
};

}  // namespace attune
