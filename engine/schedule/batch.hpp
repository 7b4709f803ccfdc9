#pragma once

#include "attune/ids.hpp"
#include "attune/request.hpp"

#include <cstdint>
#include <vector>

namespace attune {

/// A module's weight in one request, on a resident slot.
struct SlotWeight {
    SlotId slot{};
    float weight = 1.0F;
    friend bool operator==(const SlotWeight&, const SlotWeight&) = default;
};

/// One sequence's rows in a step.
struct BatchSequence {
    int first_row = 0;
    int rows = 0;         ///< tokens computed this step: 1 for decode, more for a prompt chunk
    int context = 0;      ///< KV positions already filled before this step
    int first_block = 0;  ///< offset into Batch::blocks
    int blocks = 0;       ///< covers context + rows positions
};

/// Everything one forward pass needs, as plain integers: rebuilt each step, sendable to another rank.
///
/// Rows are tokens. Sequences lie one after another, each one's rows in order. Segments cut the rows (they may start
/// inside a sequence) and say which modules touch them, in CSR form: segment s covers rows
/// [segment_rows[s], segment_rows[s + 1]) and uses segment_slots[segment_offsets[s] .. segment_offsets[s + 1]);
/// an empty list is the base.
///
/// Virtual tokens of a soft prompt are negative: -1 - i is row i of the SoftPrompt of the segment's module that has
/// one.
struct Batch {
    std::vector<TokenId> tokens;          // [rows]
    std::vector<std::int32_t> positions;  // [rows], 0-based position in its sequence
    std::vector<BatchSequence> sequences;
    std::vector<BlockId> blocks;  // all sequences' block tables, concatenated

    std::vector<std::int32_t> segment_rows;     // [segments + 1], ascending, from 0 to rows
    std::vector<std::int32_t> segment_offsets;  // [segments + 1]
    std::vector<SlotWeight> segment_slots;
    std::vector<Combine> segment_combine;  // [segments], how the states of a segment's modules combine; empty: sequence

    std::vector<std::int32_t> logit_rows;  // rows whose logits are wanted, ascending; 0..k per sequence

    int rows() const { return static_cast<int>(tokens.size()); }
    int segments() const { return segment_rows.empty() ? 0 : static_cast<int>(segment_rows.size()) - 1; }
};

}  // namespace attune
