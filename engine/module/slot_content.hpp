#pragma once

#include "engine/module/module.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace attune {

/// How an array of a module lies in the arena.
enum class ArrayForm : std::uint8_t {
    matrix,  ///< row by row, in the slots' dtype
    panels,  ///< [out, rank]: packed for the kernels, transposed for libtorch; in the slots' dtype
    floats,  ///< row by row, float32 whatever the slots' dtype: gains, biases, norms
    ids,     ///< int32
};

/// One array of a module, and its place in the arena.
struct SlotArray {
    ArrayForm form{};
    std::span<const float> values;
    std::span<const TokenId> token_ids;
    int rows = 0;
    int columns = 0;
    std::uint64_t offset = 0;

    /// Rounded up to whole places. `element_bytes`: of the slots' dtype.
    std::uint64_t bytes(std::size_t element_bytes) const;
};

/// What a module does, place by place, with its numbers as arrays of an arena: the table's row for one slot. Fields
/// that name an array hold its index; -1 is none.
class SlotContent {
public:
    static constexpr int kNone = -1;

    struct Pair {
        int rank = 0;  ///< 0: the module does not touch this place
        float scale = 1.0F;
        int a = kNone;  // matrix [rank, in]; none: shards
        int b = kNone;  // panels [out, rank]
    };
    struct Output {
        int gain = kNone;  // floats [out]
        int add = kNone;   // floats [out]
        bool gain_on_bias = false;
        bool acts() const { return gain != kNone || add != kNone; }
    };
    struct Embedding {
        int rank = 0;
        float scale = 1.0F;
        int a = kNone;     // matrix [vocab, rank]
        int b = kNone;     // panels [hidden, rank]
        int ids = kNone;   // ids [tokens]
        int rows = kNone;  // matrix [tokens, hidden]
    };
    struct State {
        bool acts = false;
        StateKind kind{};
        Activation activation = Activation::identity;
        float scale = 0;
        int width = 0;
        int vector = kNone;     // floats [hidden]
        int down = kNone;       // matrix [width, hidden]
        int down_bias = kNone;  // floats [width]
        int up = kNone;         // panels [hidden, width]
        int up_bias = kNone;    // floats [hidden]
    };

    /// `module` was checked, and outlives this.
    explicit SlotContent(const Module& module);

    std::uint64_t bytes(std::size_t element_bytes) const;
    std::vector<SlotArray>& arrays() { return arrays_; }
    const SlotArray& array(int index) const { return arrays_[static_cast<std::size_t>(index)]; }
    std::span<const SlotArray> arrays() const { return arrays_; }

    /// The head first, then the layers.
    static std::size_t site(int layer, Projection projection) {
        return projection == Projection::head
                   ? 0
                   : 1 + static_cast<std::size_t>(layer) * kProjections + static_cast<std::size_t>(projection);
    }
    static constexpr std::size_t kNormSites = 4;  ///< of one layer
    /// The last norm first, then the layers.
    static std::size_t norm_site(int layer, NormSite at) {
        return at == NormSite::last ? 0
                                    : 1 + static_cast<std::size_t>(layer) * kNormSites + static_cast<std::size_t>(at);
    }

    /// Null where the module does nothing.
    const Pair* pair(std::size_t site) const {
        return find(pairs_, site, [](const Pair& p) { return p.rank > 0; });
    }
    const Output* output(std::size_t site) const {
        return find(outputs_, site, [](const Output& output) { return output.acts(); });
    }
    const State* state(int layer) const {
        return find(states_, static_cast<std::size_t>(layer), [](const State& state) { return state.acts; });
    }
    /// An array of floats: a gain [in], a norm's delta [hidden] or [head_dim]; kNone without.
    int input_gain(std::size_t site) const { return site < inputs_.size() ? inputs_[site] : kNone; }
    int norm_delta(std::size_t site) const { return site < norms_.size() ? norms_[site] : kNone; }

    /// The input embeddings, virtual tokens included.
    bool embeds() const {
        return embedding.rank > 0 || embedding.rows != kNone || prompt_rows != kNone || new_input != kNone;
    }

    Embedding embedding;
    int head_ids = kNone;     // ids [tokens]
    int head_rows = kNone;    // matrix [tokens, hidden]
    int prompt_rows = kNone;  // floats [tokens, hidden]
    int new_input = kNone;    // matrix [new tokens, hidden], of ids beyond the base's table
    int new_head = kNone;     // likewise

private:
    template <class Entry, class Acts>
    static const Entry* find(const std::vector<Entry>& entries, std::size_t at, Acts acts) {
        return at < entries.size() && acts(entries[at]) ? &entries[at] : nullptr;
    }
    int add(ArrayForm form, std::span<const float> values, int rows);
    int add_ids(std::span<const TokenId> ids);

    std::vector<SlotArray> arrays_;
    std::vector<Pair> pairs_;      // [site], as far as the module goes; so the others
    std::vector<Output> outputs_;  // [site]
    std::vector<int> inputs_;      // [site]
    std::vector<int> norms_;       // [norm site]
    std::vector<State> states_;    // [layer]
};

}  // namespace attune
