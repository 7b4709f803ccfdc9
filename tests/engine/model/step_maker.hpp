#pragma once

// Batches by hand for tests of the model: sequences with their own block tables, in odd block order.

#include "engine/kv/block_size.hpp"
#include "engine/schedule/batch.hpp"

#include <utility>
#include <vector>

namespace attune::testing {

struct TestSequence {
    std::vector<TokenId> tokens;
    int done = 0;  ///< tokens whose keys and values are in the cache
    std::vector<BlockId> blocks = {};
};

/// Builds steps; blocks are handed out from the highest number down, so that tables are never 0, 1, 2, …
class StepMaker {
public:
    explicit StepMaker(int blocks) : next_block_(blocks) {}

    /// The next `rows` tokens of each sequence; all rows' logits are wanted. Advances `done`.
    Batch step(const std::vector<std::pair<TestSequence*, int>>& wanted) {
        Batch batch;
        batch.segment_rows = {0};
        batch.segment_offsets = {0};
        for (const auto& [sequence, rows] : wanted) {
            BatchSequence entry;
            entry.first_row = batch.rows();
            entry.rows = rows;
            entry.context = sequence->done;
            while (static_cast<int>(sequence->blocks.size()) * kBlockTokens < sequence->done + rows)
                sequence->blocks.push_back(BlockId{--next_block_});
            entry.first_block = static_cast<int>(batch.blocks.size());
            entry.blocks = static_cast<int>(sequence->blocks.size());
            batch.blocks.insert(batch.blocks.end(), sequence->blocks.begin(), sequence->blocks.end());
            for (int row = 0; row < rows; ++row) {
                batch.positions.push_back(sequence->done + row);
                batch.logit_rows.push_back(batch.rows());
                batch.tokens.push_back(sequence->tokens.at(static_cast<std::size_t>(sequence->done + row)));
            }
            sequence->done += rows;
            batch.sequences.push_back(entry);
        }
        batch.segment_rows.push_back(batch.rows());
        batch.segment_offsets.push_back(0);
        return batch;
    }

private:
    int next_block_;
};

}  // namespace attune::testing
