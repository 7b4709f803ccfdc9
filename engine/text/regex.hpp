#pragma once

#include "attune/result.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace attune {

/// A compiled split pattern of a tokenizer (PCRE2 with JIT, UTF and Unicode properties). Immutable; any thread.
/// Patterns are written for Oniguruma, so a few escapes are rewritten to what they mean there.
class Regex {
public:
    struct Match {
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    static Result<Regex> compile(std::string_view pattern);
    /// A pattern that matches `text` itself.
    static Result<Regex> literal(std::string_view text);

    /// The first match that begins at `from` or later. text must be valid UTF-8 and `from` a character's begin. A
    /// pattern that exceeds the match limits finds nothing.
    std::optional<Match> find(std::string_view text, std::size_t from) const;

    /// Calls `on_match` for each match, left to right, empty ones included, as Oniguruma's find_iter does.
    template <class OnMatch>
    void for_each(std::string_view text, OnMatch&& on_match) const {
        std::size_t from = 0;
        std::optional<std::size_t> last_end;
        while (from <= text.size()) {
            const std::optional<Match> match = find(text, from);
            if (!match) return;
            if (match->begin == match->end) {
                // An empty match right after the last one is none; then the search goes on one character later.
                if (last_end != match->end) on_match(*match);
                from = next_character(text, match->end);
            } else {
                on_match(*match);
                from = match->end;
            }
            last_end = match->end;
        }
    }

private:
    struct Code;
    explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
    static Result<Regex> build(const std::string& pattern, std::string_view shown, bool is_literal);
    static std::size_t next_character(std::string_view text, std::size_t at);

    std::shared_ptr<const Code> code_;
};

}  // namespace attune
