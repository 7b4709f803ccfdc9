#pragma once

#include "engine/text/pre_tokenizer.hpp"
#include "engine/text/regex.hpp"
#include "engine/text/unicode.hpp"

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace attune {

/// What becomes of the matches; tokenizer.json's names.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

inline std::optional<SplitBehavior> behavior_named(std::string_view name) {
    if (name == "Removed") return SplitBehavior::removed;
    if (name == "Isolated") return SplitBehavior::isolated;
    if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
    if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
    if (name == "Contiguous") return SplitBehavior::contiguous;
    return std::nullopt;
}

/// Cuts (matches and what lies between them) -> pieces.
class Splitter {
public:
    Splitter(const Piece& piece, SplitBehavior behavior, std::vector<Piece>& out)
        : piece_(piece), behavior_(behavior), out_(out) {}

    void cut(std::size_t begin, std::size_t end, bool is_match) {
        switch (behavior_) {
            case SplitBehavior::isolated:
                put(begin, end);
                return;
            case SplitBehavior::removed:
                if (!is_match) put(begin, end);
                return;
            case SplitBehavior::contiguous:
                join(begin, end, is_match == previous_match_);
                break;
            case SplitBehavior::merged_with_previous:
                join(begin, end, is_match && !previous_match_);
                break;
            case SplitBehavior::merged_with_next:
                later_.push_back({begin, end, is_match});
                return;
        }
        previous_match_ = is_match;
    }
    void finish() {
        if (behavior_ == SplitBehavior::merged_with_next) merge_from_the_end();
        if (open_) put(open_->begin, open_->end);
        open_.reset();
    }

private:
    struct Cut {
        std::size_t begin = 0;
        std::size_t end = 0;
        bool is_match = false;
    };
    void join(std::size_t begin, std::size_t end, bool with_last) {
        if (with_last && open_) {
            open_->end = end;
            return;
        }
        if (open_) put(open_->begin, open_->end);
        open_ = Cut{begin, end, false};
    }
    /// A run of matches keeps its first ones apart; only the one next to other text joins it.
    void merge_from_the_end() {
        std::vector<Cut> merged;
        bool previous_match = false;
        for (auto cut = later_.rbegin(); cut != later_.rend(); ++cut) {
            if (cut->is_match && !previous_match && !merged.empty()) {
                merged.back().begin = cut->begin;
            } else {
                merged.push_back(*cut);
            }
            previous_match = cut->is_match;
        }
        for (auto cut = merged.rbegin(); cut != merged.rend(); ++cut) put(cut->begin, cut->end);
    }
    void put(std::size_t begin, std::size_t end) {
        if (begin < end) out_.push_back({piece_.text.substr(begin, end - begin), piece_.at_start && begin == 0});
    }

    const Piece& piece_;
    SplitBehavior behavior_;
    std::vector<Piece>& out_;
    bool previous_match_ = false;
    std::optional<Cut> open_;
    std::vector<Cut> later_;
};

/// `invert`: what lies between the matches counts as one.
inline void split_by_regex(const Piece& piece, const Regex& regex, bool invert, SplitBehavior behavior,
                           std::vector<Piece>& out) {
    Splitter splitter(piece, behavior, out);
    std::size_t done = 0;
    regex.for_each(piece.text, [&](Regex::Match match) {
        if (done != match.begin) splitter.cut(done, match.begin, invert);
        splitter.cut(match.begin, match.end, !invert);
        done = match.end;
    });
    if (done != piece.text.size()) splitter.cut(done, piece.text.size(), invert);
    splitter.finish();
}

/// Each character that satisfies the predicate is one match.
template <class Predicate>
void split_by_character(const Piece& piece, Predicate&& is_match, SplitBehavior behavior, std::vector<Piece>& out) {
    Splitter splitter(piece, behavior, out);
    std::size_t done = 0;
    for (std::size_t at = 0; at < piece.text.size();) {
        const CodePoint point = code_point_at(piece.text, at);
        const std::size_t next = at + point.bytes;
        if (is_match(point.value)) {
            if (done != at) splitter.cut(done, at, false);
            splitter.cut(at, next, true);
            done = next;
        }
        at = next;
    }
    if (done != piece.text.size()) splitter.cut(done, piece.text.size(), false);
    splitter.finish();
}

}  // namespace attune
