#pragma once

#include "engine/text/jinja/ast.hpp"

#include <deque>
#include <utility>
#include <vector>

namespace attune::jinja {

/// The names of one block while it is parsed, and the slots they get in the frame that it has when it runs.
class BlockScope {
public:
    /// `parent` is null for the whole template.
    explicit BlockScope(const BlockScope* parent) : parent_(parent) {}

    const BlockScope* parent() const { return parent_; }
    /// Gives the name a slot when it has none. A template's own names have their symbols for slots.
    int slot_of(Symbol symbol);
    /// -1: the block assigns no such name.
    int find(Symbol symbol) const;
    std::size_t slots() const { return symbols_.size(); }

private:
    const BlockScope* parent_;
    std::vector<Symbol> symbols_;  // by slot
};

/// All blocks of a template, and where its names lead. That is known only at the end: a block may assign a name after
/// a macro in it has used it.
class BlockScopes {
public:
    BlockScopes() { current_ = &all_.emplace_back(nullptr); }
    BlockScopes(const BlockScopes&) = delete;
    BlockScopes& operator=(const BlockScopes&) = delete;

    BlockScope& current() { return *current_; }
    BlockScope& outermost() { return all_.front(); }
    BlockScope& open(const BlockScope& parent) { return all_.emplace_back(&parent); }
    /// Another with the same names in the same slots.
    BlockScope& open_copy(const BlockScope& scope) { return all_.emplace_back(scope); }
    /// Notes a name that is used in the current block.
    void add(Reference& reference) { references_.emplace_back(&reference, current_); }
    void resolve_all();

    /// Makes a block current for as long as it lives.
    class Inside {
    public:
        Inside(BlockScopes& scopes, BlockScope& scope)
            : scopes_(scopes), outer_(std::exchange(scopes.current_, &scope)) {}
        ~Inside() { scopes_.current_ = outer_; }
        Inside(const Inside&) = delete;
        Inside& operator=(const Inside&) = delete;

    private:
        BlockScopes& scopes_;
        BlockScope* outer_;
    };

private:
    std::deque<BlockScope> all_;
    BlockScope* current_;
    std::vector<std::pair<Reference*, const BlockScope*>> references_;
};

}  // namespace attune::jinja
