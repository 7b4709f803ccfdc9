#include "engine/text/jinja/block_scope.hpp"

#include <algorithm>

namespace attune::jinja {

int BlockScope::slot_of(Symbol symbol) {
    if (parent_ == nullptr) return symbol;
    if (const int slot = find(symbol); slot >= 0) return slot;
    symbols_.push_back(symbol);
    return static_cast<int>(symbols_.size()) - 1;
}

int BlockScope::find(Symbol symbol) const {
    const auto found = std::find(symbols_.begin(), symbols_.end(), symbol);
    return found == symbols_.end() ? -1 : static_cast<int>(found - symbols_.begin());
}

void BlockScopes::resolve_all() {
    for (const auto& [reference, used_in] : references_) {
        std::vector<Reference::Place> places;
        int hops = 0;
        for (const BlockScope* scope = used_in; scope->parent() != nullptr; scope = scope->parent()) {
            const int slot = scope->find(reference->symbol());
            if (slot >= 0) places.push_back({std::exchange(hops, 0), slot});
            ++hops;
        }
        reference->resolve(std::move(places));
    }
    references_.clear();
}

}  // namespace attune::jinja
