#pragma once

#include "engine/text/bpe_model.hpp"

#include <span>
#include <string_view>

namespace attune {

/// One entry of a SentencePiece vocabulary.
struct ScoredPiece {
    std::string_view text;
    double score = 0;
};

/// SentencePiece's BPE knows no merges, only scores: of all neighbours whose joined text is a piece, the one that
/// scores best is joined, the leftmost of equals. As merges: each way to cut a piece in two pieces, ranked by its
/// score; equal scores share a rank.
void add_scored_merges(std::span<const ScoredPiece> pieces, BpeConfig& config);

}  // namespace attune
