#pragma once

#include "attune/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace attune {

/// A rule's regular expression: PCRE2 with Unicode properties, whatever the case unless it says `(?-i)`. Immutable; any
/// thread. One search costs at most kSteps of backtracking, so no pattern holds up a request: beyond that it finds
/// nothing and says so.
class RoutePattern {
public:
    static constexpr std::size_t kBytes = 1024;              ///< of a pattern's text
    static constexpr std::size_t kCompiledBytes = 64 << 10;  ///< of its compiled form
    static constexpr std::uint32_t kSteps = 100'000;

    enum class Outcome { none, found, over_limit };
    struct Match {
        Outcome outcome = Outcome::none;
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    /// Refused: what PCRE2 does not understand, what is too large, and what matches an empty text (it would match
    /// everything). The error is a sentence about the pattern.
    static Result<RoutePattern> compile(std::string_view pattern);

    /// The first match; `text` is valid UTF-8.
    Match find(std::string_view text) const;

private:
    struct Code;
    explicit RoutePattern(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

    std::shared_ptr<const Code> code_;
};

}  // namespace attune
