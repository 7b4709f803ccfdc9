#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// Finds every occurrence of many keywords in one pass over a text (Aho and Corasick, 1975), so ten thousand rules
/// cost a request about as much as one. Bytes in, bytes out: folding and word boundaries are the caller's.
class KeywordIndex {
public:
    KeywordIndex() = default;
    /// `keywords`: ascending, distinct, none empty; a match names the place in this list.
    explicit KeywordIndex(const std::vector<std::string>& keywords);

    /// Calls found(keyword, begin, end) for each occurrence, in order of `end`; overlapping ones too.
    template <class Found>
    void scan(std::string_view text, Found&& found) const {
        if (nodes_.empty()) return;
        std::int32_t at = 0;
        for (std::size_t i = 0; i < text.size(); ++i) {
            at = step(at, static_cast<std::uint8_t>(text[i]));
            for (std::int32_t hit = nodes_[at].keyword >= 0 ? at : nodes_[at].shorter_match; hit >= 0;
                 hit = nodes_[hit].shorter_match) {
                const Node& node = nodes_[hit];
                found(static_cast<std::size_t>(node.keyword), i + 1 - node.depth, i + 1);
            }
        }
    }

private:
    // Children of a node lie side by side, ascending by byte: no edge lists, no hashing.
    struct Node {
        std::int32_t first_child = 0;
        std::int32_t children = 0;
        std::int32_t longest_suffix = 0;  ///< where to go on when no child fits
        std::int32_t shorter_match = -1;  ///< nearest node along the suffixes that ends a keyword
        std::int32_t keyword = -1;        ///< the keyword that ends here
        std::uint32_t depth = 0;
        std::uint8_t byte = 0;
    };

    std::int32_t child(std::int32_t node, std::uint8_t byte) const;
    std::int32_t step(std::int32_t node, std::uint8_t byte) const;

    std::vector<Node> nodes_;  ///< 0 is the root
};

}  // namespace attune
