#include "engine/module/slot_content.hpp"

#include "engine/kernels/lora.hpp"
#include "engine/module/arena.hpp"

#include <algorithm>

namespace attune {
namespace {

/// entries[at], after the table has grown that far.
template <class Entry>
Entry& grown(std::vector<Entry>& entries, std::size_t at, Entry fill = {}) {
    if (entries.size() <= at) entries.resize(at + 1, fill);
    return entries[at];
}

}  // namespace

std::uint64_t SlotArray::bytes(std::size_t element_bytes) const {
    switch (form) {
        case ArrayForm::matrix:
            return Arena::rounded(values.size() * element_bytes);
        case ArrayForm::panels:
            return Arena::rounded(packed_b_elements(rows, columns) * element_bytes);
        case ArrayForm::floats:
            return Arena::rounded(values.size() * sizeof(float));
        case ArrayForm::ids:
            return Arena::rounded(token_ids.size() * sizeof(TokenId));
    }
    return 0;
}

std::uint64_t SlotContent::bytes(std::size_t element_bytes) const {
    std::uint64_t sum = 0;
    for (const SlotArray& array : arrays_) sum += array.bytes(element_bytes);
    return sum;
}

int SlotContent::add(ArrayForm form, std::span<const float> values, int rows) {
    if (values.empty() || rows < 1) return kNone;
    arrays_.push_back({form, values, {}, rows, static_cast<int>(values.size()) / rows, 0});
    return static_cast<int>(arrays_.size()) - 1;
}

int SlotContent::add_ids(std::span<const TokenId> ids) {
    if (ids.empty()) return kNone;
    arrays_.push_back({ArrayForm::ids, {}, ids, static_cast<int>(ids.size()), 1, 0});
    return static_cast<int>(arrays_.size()) - 1;
}

SlotContent::SlotContent(const Module& module) {
    const auto outputs_of = [](std::span<const float> panels, int rank) {
        return rank < 1 ? 0 : static_cast<int>(panels.size()) / rank;
    };
    for (const LowRankPair& pair : module.pairs)
        grown(pairs_, site(pair.layer, pair.projection)) = {
            pair.rank, pair.scale, add(ArrayForm::matrix, pair.a, pair.rank),
            add(ArrayForm::panels, pair.b, outputs_of(pair.b, pair.rank))};
    for (const OutputTerm& term : module.outputs)
        grown(outputs_, site(term.layer, term.projection)) = {add(ArrayForm::floats, term.gain, 1),
                                                              add(ArrayForm::floats, term.add, 1), term.gain_on_bias};
    for (const InputTerm& term : module.inputs)
        grown(inputs_, site(term.layer, term.projection), kNone) = add(ArrayForm::floats, term.gain, 1);
    if (const auto& term = module.embedding) {
        embedding.rank = term->rank;
        embedding.scale = term->scale;
        if (term->rank > 0) {
            embedding.a = add(ArrayForm::matrix, term->a, static_cast<int>(term->a.size()) / term->rank);
            embedding.b = add(ArrayForm::panels, term->b, outputs_of(term->b, term->rank));
        }
        embedding.ids = add_ids(term->tokens);
        embedding.rows = add(ArrayForm::matrix, term->rows, static_cast<int>(term->tokens.size()));
    }
    if (module.head_rows) {
        head_ids = add_ids(module.head_rows->tokens);
        head_rows = add(ArrayForm::matrix, module.head_rows->rows, static_cast<int>(module.head_rows->tokens.size()));
    }
    if (module.new_tokens) {
        new_input = add(ArrayForm::matrix, module.new_tokens->input, module.new_tokens->count);
        new_head = add(ArrayForm::matrix, module.new_tokens->head, module.new_tokens->count);
    }
    for (const NormTerm& term : module.norms)
        grown(norms_, norm_site(term.layer, term.site), kNone) = add(ArrayForm::floats, term.delta, 1);
    if (module.prompt) prompt_rows = add(ArrayForm::floats, module.prompt->rows, module.prompt->tokens);
    for (const StateLayer& layer : module.states) {
        State state;
        state.acts = true;
        state.kind = layer.kind;
        state.activation = layer.kind == StateKind::bottleneck ? layer.activation : Activation::identity;
        state.scale = layer.scale;
        state.width = layer.kind == StateKind::vector ? 0 : layer.width;
        state.vector = add(ArrayForm::floats, layer.vector, 1);
        state.down = add(ArrayForm::matrix, layer.down, layer.width);
        state.down_bias = add(ArrayForm::floats, layer.down_bias, 1);
        state.up = add(ArrayForm::panels, layer.up, outputs_of(layer.up, layer.width));
        state.up_bias = add(ArrayForm::floats, layer.up_bias, 1);
        grown(states_, static_cast<std::size_t>(layer.layer)) = state;
    }
}

}  // namespace attune
