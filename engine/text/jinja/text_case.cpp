#include "engine/text/jinja/text.hpp"
#include "engine/text/unicode.hpp"

#include <utf8proc.h>

#include <array>
#include <string>

namespace attune::jinja {
namespace {

struct FullCase {
    char32_t lower;
    std::string_view upper;
};

// Characters whose upper case is several: those that occur in real text.
constexpr std::array kFullUpper = {
    FullCase{0x00DF, "SS"}, FullCase{0x0149, "\xCA\xBCN"}, FullCase{0x01F0, "J\xCC\x8C"}, FullCase{0xFB00, "FF"},
    FullCase{0xFB01, "FI"}, FullCase{0xFB02, "FL"},        FullCase{0xFB03, "FFI"},       FullCase{0xFB04, "FFL"},
    FullCase{0xFB05, "ST"}, FullCase{0xFB06, "ST"},
};

void append_upper(std::string& out, char32_t c) {
    for (const FullCase& special : kFullUpper) {
        if (special.lower == c) {
            out += special.upper;
            return;
        }
    }
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
    if (c == 0xDF) {
        out += "Ss";
        return;
    }
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

bool is_cased(char32_t c) {
    return utf8proc_tolower(static_cast<utf8proc_int32_t>(c)) != static_cast<utf8proc_int32_t>(c) ||
           utf8proc_toupper(static_cast<utf8proc_int32_t>(c)) != static_cast<utf8proc_int32_t>(c) || c == 0xDF;
}

/// Greek sigma at a word's end has its own small form.
bool is_final_sigma(std::string_view text, std::size_t at, std::size_t next) {
    const bool after_letter = at > 0 && is_cased(code_point_before(text, at).value);
    const bool before_letter = next < text.size() && is_cased(code_point_at(text, next).value);
    return after_letter && !before_letter;
}

void append_lower(std::string& out, std::string_view text, std::size_t at, CodePoint point) {
    if (point.value == 0x130) {
        out += "i\xCC\x87";
    } else if (point.value == 0x3A3 && is_final_sigma(text, at, at + point.bytes)) {
        append_utf8(out, 0x3C2);
    } else {
        append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))));
    }
}

/// Character by character: `map(out, at, point)` appends what becomes of it, which stays as literal as it was.
template <class Map>
Text map_characters(Arena& arena, const Text& text, Map&& map) {
    const std::string_view bytes = text.bytes();
    std::string mapped;
    if (text.ranges().empty()) {
        mapped.reserve(bytes.size());
        for (std::size_t at = 0; at < bytes.size();) {
            const CodePoint point = code_point_at(bytes, at);
            map(mapped, at, point);
            at += point.bytes;
        }
        return Text(arena.copy(mapped), text.is_literal());
    }
    TextBuilder builder(arena);
    auto range = text.ranges().begin();
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = code_point_at(bytes, at);
        mapped.clear();
        map(mapped, at, point);
        while (range != text.ranges().end() && range->end <= at) ++range;
        builder.append(mapped, range != text.ranges().end() && range->begin <= at);
        at += point.bytes;
    }
    return builder.take();
}

}  // namespace

Text upper(Arena& arena, const Text& text) {
    return map_characters(arena, text,
                          [](std::string& out, std::size_t, CodePoint point) { append_upper(out, point.value); });
}

Text lower(Arena& arena, const Text& text) {
    return map_characters(arena, text, [&](std::string& out, std::size_t at, CodePoint point) {
        append_lower(out, text.bytes(), at, point);
    });
}

Text capitalize(Arena& arena, const Text& text) {
    return map_characters(arena, text, [&](std::string& out, std::size_t at, CodePoint point) {
        if (at == 0) {
            append_title(out, point.value);
        } else {
            append_lower(out, text.bytes(), at, point);
        }
    });
}

Text title(Arena& arena, const Text& text) {
    bool in_word = false;
    return map_characters(arena, text, [&](std::string& out, std::size_t at, CodePoint point) {
        if (in_word) {
            append_lower(out, text.bytes(), at, point);
        } else {
            append_title(out, point.value);
        }
        in_word = is_cased(point.value);
    });
}

Text swap_case(Arena& arena, const Text& text) {
    return map_characters(arena, text, [&](std::string& out, std::size_t at, CodePoint point) {
        const auto c = static_cast<utf8proc_int32_t>(point.value);
        if (utf8proc_tolower(c) != c) {
            append_lower(out, text.bytes(), at, point);
        } else {
            append_upper(out, point.value);
        }
    });
}

Text escape_html(Arena& arena, const Text& text) {
    const Text out = map_characters(arena, text, [](std::string& escaped, std::size_t, CodePoint point) {
        switch (point.value) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&#34;";
                break;
            case '\'':
                escaped += "&#39;";
                break;
            default:
                append_utf8(escaped, point.value);
        }
    });
    return out.with_markup(true);
}

}  // namespace attune::jinja
