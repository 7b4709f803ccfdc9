#pragma once

#include "attune/result.hpp"

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// A regular expression of an adapter's config, matched against module paths as Python's `re` would. It comes from a
/// stranger, so it is run as an automaton: time is at most (pattern size) x (path length), once more the
/// path length inside a lookahead, whatever the pattern. Groups, alternation, classes, lazy and bounded repeats,
/// anchors, `\b` and lookahead work; back-references, lookbehind, flags and possessive repeats are refused by name.
/// Bytes, not characters: module paths are ASCII.
class PathPattern {
public:
    static constexpr std::size_t kMaxPatternBytes = 4096;
    static constexpr std::size_t kMaxSteps = 8192;  ///< automaton size after repeats are written out

    static Result<PathPattern> compile(std::string_view pattern);

    /// `re.fullmatch(pattern, path)`
    bool full_match(std::string_view path) const;
    /// `re.match(pattern, path)`: from the start, not necessarily to the end
    bool match(std::string_view path) const;

private:
    friend class PatternCompiler;

    enum class Op : std::uint8_t { set, split, jump, begin, end, word_edge, no_word_edge, look, look_not, accept };
    struct Step {
        Op op = Op::accept;
        int next = 0;   // where to go on; first choice of a split
        int other = 0;  // second choice of a split; index of the set or of the lookahead
    };
    using ByteSet = std::bitset<256>;

    bool run(std::string_view path, std::size_t from, bool to_end) const;

    std::vector<Step> steps_;
    std::vector<ByteSet> sets_;
    std::vector<PathPattern> looks_;
};

}  // namespace attune
