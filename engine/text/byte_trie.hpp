#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace attune {

/// Texts -> numbers, found by their prefixes. Edges lie in one open-addressing table, as a node has few of them.
class ByteTrie {
public:
    /// A text inserted twice keeps the later value.
    void insert(std::string_view text, std::int32_t value);
    std::optional<std::int32_t> find(std::string_view text) const;

    /// Calls `found(bytes, value)` for each inserted text that `text` begins with, shortest first.
    template <class Found>
    void for_each_prefix(std::string_view text, Found&& found) const {
        std::int32_t node = 0;
        for (std::size_t i = 0; i < text.size(); ++i) {
            node = child(node, static_cast<unsigned char>(text[i]));
            if (node < 0) return;
            if (values_[static_cast<std::size_t>(node)] >= 0) found(i + 1, values_[static_cast<std::size_t>(node)]);
        }
    }

private:
    struct Edge {
        std::uint64_t key = kEmpty;  // node and byte
        std::int32_t to = -1;
    };
    static constexpr std::uint64_t kEmpty = ~0ull;
    std::size_t slot_of(std::uint64_t key) const;
    std::int32_t child(std::int32_t node, unsigned char byte) const;
    void grow();

    std::vector<Edge> edges_ = std::vector<Edge>(64);
    std::size_t edge_count_ = 0;
    std::vector<std::int32_t> values_ = {-1};  // by node; -1: no text ends here
};

}  // namespace attune
