#include "engine/text/jinja/text.hpp"

#include "engine/text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace attune::jinja {
namespace {

bool is_literal_at(const Text& text, std::size_t at) {
    for (const TextRange& range : text.literal) {
        if (at < range.begin) return false;
        if (at < range.end) return true;
    }
    return false;
}

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
Text map_characters(const Text& text, Map&& map) {
    const bool mixed = text.literal.size() > 1 ||
                       (text.literal.size() == 1 &&
                        (text.literal[0].end - text.literal[0].begin) != static_cast<std::uint32_t>(text.bytes.size()));
    if (!mixed) {
        std::string out;
        out.reserve(text.bytes.size());
        for (std::size_t at = 0; at < text.bytes.size();) {
            const CodePoint point = code_point_at(text.bytes, at);
            map(out, at, point);
            at += point.bytes;
        }
        return Text(std::move(out), text.has_literal());
    }
    TextBuilder builder;
    std::string mapped;
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = code_point_at(text.bytes, at);
        mapped.clear();
        map(mapped, at, point);
        builder.append(mapped, is_literal_at(text, at));
        at += point.bytes;
    }
    return builder.take();
}

template <class IsStripped>
Text strip_if(const Text& text, Side side, IsStripped&& is_stripped) {
    std::size_t begin = 0;
    std::size_t end = text.bytes.size();
    while (side != Side::right && begin < end) {
        const CodePoint point = code_point_at(text.bytes, begin);
        if (!is_stripped(point.value)) break;
        begin += point.bytes;
    }
    while (side != Side::left && end > begin) {
        const CodePoint point = code_point_before(text.bytes, end);
        if (!is_stripped(point.value)) break;
        end -= point.bytes;
    }
    return slice_bytes(text, begin, end);
}

}  // namespace

void TextBuilder::mark(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    auto& ranges = text_.literal;
    if (!ranges.empty() && ranges.back().end == begin) {
        ranges.back().end = static_cast<std::uint32_t>(end);
    } else {
        ranges.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
    }
}

void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
    const std::size_t at = text_.bytes.size();
    text_.bytes.append(text.bytes, begin, end - begin);
    for (const TextRange& range : text.literal) {
        const std::size_t from = std::max<std::size_t>(range.begin, begin);
        const std::size_t to = std::min<std::size_t>(range.end, end);
        if (from < to) mark(at + from - begin, at + to - begin);
    }
}

void TextBuilder::append(std::string_view bytes, bool literal) {
    const std::size_t at = text_.bytes.size();
    text_.bytes.append(bytes);
    if (literal) mark(at, text_.bytes.size());
}

std::size_t length_of(const Text& text) { return count_code_points(text.bytes); }

std::size_t find_bytes(std::string_view bytes, std::string_view wanted, std::size_t from) {
    if (from > bytes.size()) return std::string_view::npos;
    // std::string's own search is quadratic for a pair like "aaa...ab" in "aaa...a".
    const void* found = memmem(bytes.data() + from, bytes.size() - from, wanted.data(), wanted.size());
    if (found == nullptr) return std::string_view::npos;
    return static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data());
}

Text slice_bytes(const Text& text, std::size_t begin, std::size_t end) {
    if (begin == 0 && end == text.bytes.size()) return text;
    TextBuilder builder;
    builder.append(text, begin, end);
    return builder.take();
}

std::size_t offset_of(std::string_view bytes, std::size_t index) {
    std::size_t at = 0;
    for (; index > 0 && at < bytes.size(); --index) at += code_point_at(bytes, at).bytes;
    return at;
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

Text upper(const Text& text) {
    return map_characters(text, [](std::string& out, std::size_t, CodePoint point) { append_upper(out, point.value); });
}

Text lower(const Text& text) {
    return map_characters(
        text, [&](std::string& out, std::size_t at, CodePoint point) { append_lower(out, text.bytes, at, point); });
}

Text capitalize(const Text& text) {
    return map_characters(text, [&](std::string& out, std::size_t at, CodePoint point) {
        if (at == 0) {
            append_title(out, point.value);
        } else {
            append_lower(out, text.bytes, at, point);
        }
    });
}

Text title(const Text& text) {
    bool in_word = false;
    return map_characters(text, [&](std::string& out, std::size_t at, CodePoint point) {
        if (in_word) {
            append_lower(out, text.bytes, at, point);
        } else {
            append_title(out, point.value);
        }
        in_word = is_cased(point.value);
    });
}

Text swap_case(const Text& text) {
    return map_characters(text, [&](std::string& out, std::size_t at, CodePoint point) {
        const auto c = static_cast<utf8proc_int32_t>(point.value);
        if (utf8proc_tolower(c) != c) {
            append_lower(out, text.bytes, at, point);
        } else {
            append_upper(out, point.value);
        }
    });
}

Text strip(const Text& text, Side side) {
    return strip_if(text, side, [](char32_t c) { return is_python_space(c); });
}

Text strip(const Text& text, Side side, std::string_view characters) {
    return strip_if(text, side, [&](char32_t c) {
        for (std::size_t at = 0; at < characters.size();) {
            const CodePoint point = code_point_at(characters, at);
            if (point.value == c) return true;
            at += point.bytes;
        }
        return false;
    });
}

Text replace(const Text& text, const Text& old, const Text& with, std::int64_t count) {
    TextBuilder builder;
    std::size_t done = 0;
    if (old.bytes.empty()) {
        // An empty string is found before every character and at the end.
        for (std::size_t at = 0; at <= text.bytes.size() && count != 0; --count) {
            builder.append(text, done, at);
            builder.append(with);
            done = at;
            at = at < text.bytes.size() ? at + code_point_at(text.bytes, at).bytes : at + 1;
        }
    } else {
        for (; count != 0; --count) {
            const std::size_t found = find_bytes(text.bytes, old.bytes, done);
            if (found == std::string::npos) break;
            builder.append(text, done, found);
            builder.append(with);
            done = found + old.bytes.size();
        }
    }
    builder.append(text, done, text.bytes.size());
    return builder.take();
}

std::vector<Text> split_on_space(const Text& text, std::int64_t most, bool from_right) {
    struct Word {
        std::size_t begin;
        std::size_t end;
    };
    std::vector<Word> words;
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = code_point_at(text.bytes, at);
        const bool space = is_python_space(point.value);
        if (!space && (words.empty() || words.back().end != at)) words.push_back({at, at});
        if (!space) words.back().end = at + point.bytes;
        at += point.bytes;
    }
    std::vector<Text> parts;
    const auto limit = static_cast<std::size_t>(most);
    if (most < 0 || words.size() <= limit) {
        for (const Word& word : words) parts.push_back(slice_bytes(text, word.begin, word.end));
    } else if (from_right) {
        const std::size_t kept = words.size() - limit;
        // What is left keeps the white space at its begin.
        parts.push_back(slice_bytes(text, 0, words[kept - 1].end));
        for (std::size_t i = kept; i < words.size(); ++i) {
            parts.push_back(slice_bytes(text, words[i].begin, words[i].end));
        }
    } else {
        for (std::size_t i = 0; i < limit; ++i) parts.push_back(slice_bytes(text, words[i].begin, words[i].end));
        // What is left keeps the white space at its end.
        parts.push_back(slice_bytes(text, words[limit].begin, text.bytes.size()));
    }
    return parts;
}

std::vector<Text> split_on(const Text& text, std::string_view separator, std::int64_t most, bool from_right) {
    std::vector<Text> parts;
    if (!from_right) {
        std::size_t done = 0;
        for (; most != 0; --most) {
            const std::size_t found = find_bytes(text.bytes, separator, done);
            if (found == std::string::npos) break;
            parts.push_back(slice_bytes(text, done, found));
            done = found + separator.size();
        }
        parts.push_back(slice_bytes(text, done, text.bytes.size()));
        return parts;
    }
    std::size_t end = text.bytes.size();
    for (; most != 0 && end >= separator.size(); --most) {
        const std::size_t found = text.bytes.rfind(separator, end - separator.size());
        if (found == std::string::npos) break;
        parts.push_back(slice_bytes(text, found + separator.size(), end));
        end = found;
    }
    parts.push_back(slice_bytes(text, 0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
    std::vector<Text> lines;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = code_point_at(text.bytes, at);
        const char32_t c = point.value;
        std::size_t next = at + point.bytes;
        const bool ends = (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (ends) {
            if (c == '\r' && next < text.bytes.size() && text.bytes[next] == '\n') ++next;
            lines.push_back(slice_bytes(text, begin, keep_ends ? next : at));
            begin = next;
        }
        at = next;
    }
    if (begin < text.bytes.size()) lines.push_back(slice_bytes(text, begin, text.bytes.size()));
    return lines;
}

Text pad(const Text& text, std::int64_t width, std::string_view fill, Side text_side) {
    const auto length = static_cast<std::int64_t>(length_of(text));
    if (width <= length) return text;
    const std::int64_t missing = width - length;
    std::int64_t left = 0;
    if (text_side == Side::right) left = missing;
    // str.center puts the odd one left only when the width is odd.
    if (text_side == Side::both) left = missing / 2 + (missing & width & 1);
    TextBuilder builder;
    for (std::int64_t i = 0; i < left; ++i) builder.append(fill);
    builder.append(text);
    for (std::int64_t i = left; i < missing; ++i) builder.append(fill);
    return builder.take();
}

Text escape_html(const Text& text) {
    Text out = map_characters(text, [](std::string& escaped, std::size_t, CodePoint point) {
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
    out.markup = true;
    return out;
}

}  // namespace attune::jinja
