#include "engine/text/scored_merges.hpp"

#include "engine/text/unicode.hpp"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

namespace attune {

void add_scored_merges(std::span<const ScoredPiece> pieces, BpeConfig& config) {
    // What may be a half is any plain entry of the vocabulary; what may be made is a piece with a score.
    std::unordered_set<std::string_view> known;
    for (const ScoredPiece& piece : pieces) known.insert(piece.text);
    std::vector<const ScoredPiece*> ordered;
    for (const ScoredPiece& piece : pieces) ordered.push_back(&piece);
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const ScoredPiece* left, const ScoredPiece* right) { return left->score > right->score; });
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < ordered.size(); ++i) {
        if (i > 0 && ordered[i]->score != ordered[i - 1]->score) ++rank;
        const std::string_view text = ordered[i]->text;
        for (std::size_t cut = 0; cut < text.size();) {
            cut += code_point_at(text, cut).bytes;
            if (cut >= text.size()) break;
            const std::string_view left = text.substr(0, cut);
            const std::string_view right = text.substr(cut);
            if (!known.contains(left) || !known.contains(right)) continue;
            config.merges.emplace_back(left, right);
            config.merge_ranks.push_back(rank);
        }
    }
}

}  // namespace attune
