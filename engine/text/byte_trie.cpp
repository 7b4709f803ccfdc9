#include "engine/text/byte_trie.hpp"

#include <utility>

namespace attune {
namespace {

std::uint64_t key_of(std::int32_t node, unsigned char byte) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 8 | byte;
}

}  // namespace

std::size_t ByteTrie::slot_of(std::uint64_t key) const {
    const std::size_t mask = edges_.size() - 1;
    std::size_t slot = (key * 0x9E3779B97F4A7C15ull >> 20) & mask;
    while (edges_[slot].key != kEmpty && edges_[slot].key != key) slot = (slot + 1) & mask;
    return slot;
}

std::int32_t ByteTrie::child(std::int32_t node, unsigned char byte) const {
    return edges_[slot_of(key_of(node, byte))].to;
}

void ByteTrie::grow() {
    std::vector<Edge> old(edges_.size() * 2);
    std::swap(old, edges_);
    for (const Edge& edge : old) {
        if (edge.key != kEmpty) edges_[slot_of(edge.key)] = edge;
    }
}

void ByteTrie::insert(std::string_view text, std::int32_t value) {
    std::int32_t node = 0;
    for (const char c : text) {
        const std::uint64_t key = key_of(node, static_cast<unsigned char>(c));
        std::size_t slot = slot_of(key);
        if (edges_[slot].key == kEmpty) {
            if (2 * ++edge_count_ > edges_.size()) {
                grow();
                slot = slot_of(key);
            }
            edges_[slot] = {key, static_cast<std::int32_t>(values_.size())};
            values_.push_back(-1);
        }
        node = edges_[slot].to;
    }
    values_[static_cast<std::size_t>(node)] = value;
}

std::optional<std::int32_t> ByteTrie::find(std::string_view text) const {
    std::int32_t node = 0;
    for (const char c : text) {
        node = child(node, static_cast<unsigned char>(c));
        if (node < 0) return std::nullopt;
    }
    const std::int32_t value = values_[static_cast<std::size_t>(node)];
    return value < 0 ? std::nullopt : std::optional<std::int32_t>(value);
}

}  // namespace attune
