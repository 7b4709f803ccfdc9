#include "engine/route/keyword_index.hpp"

#include <algorithm>

namespace attune {

KeywordIndex::KeywordIndex(const std::vector<std::string>& keywords) {
    if (keywords.empty()) return;
    // Breadth first over ranges of the sorted list: the keywords below a node are neighbours in it.
    struct Range {
        std::size_t begin;
        std::size_t end;
    };
    std::vector<Range> ranges{{0, keywords.size()}};
    nodes_.emplace_back();
    for (std::size_t at = 0; at < nodes_.size(); ++at) {
        auto [begin, end] = ranges[at];
        const std::uint32_t depth = nodes_[at].depth;
        if (depth > 0 && keywords[begin].size() == depth) {
            nodes_[at].keyword = static_cast<std::int32_t>(begin);
            ++begin;
        }
        nodes_[at].first_child = static_cast<std::int32_t>(nodes_.size());
        while (begin < end) {
            const char byte = keywords[begin][depth];
            std::size_t stop = begin + 1;
            while (stop < end && keywords[stop][depth] == byte) ++stop;
            Node node;
            node.depth = depth + 1;
            node.byte = static_cast<std::uint8_t>(byte);
            nodes_.push_back(node);
            ranges.push_back({begin, stop});
            ++nodes_[at].children;
            begin = stop;
        }
    }
    // Parents come before children, so a parent's suffix is final when its children ask for it.
    for (std::size_t at = 0; at < nodes_.size(); ++at) {
        const Node parent = nodes_[at];
        for (std::int32_t c = parent.first_child; c < parent.first_child + parent.children; ++c) {
            Node& node = nodes_[static_cast<std::size_t>(c)];
            node.longest_suffix = at == 0 ? 0 : step(parent.longest_suffix, node.byte);
            const Node& suffix = nodes_[static_cast<std::size_t>(node.longest_suffix)];
            node.shorter_match = suffix.keyword >= 0 ? node.longest_suffix : suffix.shorter_match;
        }
    }
}

std::int32_t KeywordIndex::child(std::int32_t node, std::uint8_t byte) const {
    const Node& parent = nodes_[static_cast<std::size_t>(node)];
    const auto first = nodes_.begin() + parent.first_child;
    const auto last = first + parent.children;
    const auto found =
        std::lower_bound(first, last, byte, [](const Node& candidate, std::uint8_t b) { return candidate.byte < b; });
    return found != last && found->byte == byte ? static_cast<std::int32_t>(found - nodes_.begin()) : -1;
}

std::int32_t KeywordIndex::step(std::int32_t node, std::uint8_t byte) const {
    while (true) {
        if (const std::int32_t next = child(node, byte); next >= 0) return next;
        if (node == 0) return 0;
        node = nodes_[static_cast<std::size_t>(node)].longest_suffix;
    }
}

}  // namespace attune
