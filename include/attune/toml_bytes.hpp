#pragma once

#include "attune/utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

namespace attune {

struct TomlFault {
    std::size_t line = 0;  ///< from 1
    const char* what = "";
};

/// What is wrong with bytes beyond ASCII: TOML allows them in strings and comments only, and as well-formed UTF-8. In a
/// file that is wrong in other ways, too, the parser may have another say. Any thread.
inline std::optional<TomlFault> find_toml_fault(std::string_view text) {
    std::size_t line = 1;
    for (std::string_view rest = text; !rest.empty(); ++line) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        if (!is_valid_utf8(rest.substr(0, end))) return TomlFault{line, "ill-formed UTF-8"};
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    line = 1;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '#') {
            at = std::min(text.find('\n', at), text.size());
            ++line;
        } else if (c == '"' || c == '\'') {
            const bool is_long =
                text.substr(at, 3).find_first_not_of(c) == std::string_view::npos && text.size() - at >= 3;
            const std::string_view quote = text.substr(at, is_long ? 3 : 1);
            for (at += quote.size(); at < text.size() && text.substr(at, quote.size()) != quote; ++at) {
                if (text[at] == '\n' && !is_long) break;  // unfinished: toml++ says so
                if (text[at] == '\n') ++line;
                if (text[at] == '\\' && c == '"' && text.substr(at + 1, 1) != "\n") ++at;
            }
            if (at < text.size() && text[at] == '\n') ++line;
            at += quote.size() - 1;
            // A text in three quotes may end in one or two of its own, right before them.
            if (!is_long) continue;
            for (int own = 0; own < 2 && at + 1 < text.size() && text[at + 1] == c; ++own) ++at;
        } else if (c == '\n') {
            ++line;
        } else if (static_cast<unsigned char>(c) >= 0x80) {
            return TomlFault{line, "a letter beyond ASCII outside of quotes"};
        }
    }
    return std::nullopt;
}

}  // namespace attune
