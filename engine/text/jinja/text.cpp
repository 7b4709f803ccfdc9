#include "engine/text/jinja/text.hpp"

#include "engine/text/unicode.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace attune::jinja {
namespace {

template <class IsStripped>
Text strip_if(Arena& arena, const Text& text, Side side, IsStripped&& is_stripped) {
    std::size_t begin = 0;
    std::size_t end = text.bytes().size();
    while (side != Side::right && begin < end) {
        const CodePoint point = code_point_at(text.bytes(), begin);
        if (!is_stripped(point.value)) break;
        begin += point.bytes;
    }
    while (side != Side::left && end > begin) {
        const CodePoint point = code_point_before(text.bytes(), end);
        if (!is_stripped(point.value)) break;
        end -= point.bytes;
    }
    return slice_bytes(arena, text, begin, end);
}

}  // namespace

Text TextBuilder::take() const {
    if (bytes_.empty()) return Text();
    const std::string_view bytes(bytes_.begin(), bytes_.size());
    if (ranges_.empty()) return Text(bytes);
    if (ranges_[0].begin == 0 && ranges_[0].end == bytes.size()) return Text(bytes, true);
    return Text(bytes, ranges_.view());
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    if (!ranges_.empty() && ranges_.back().end == begin) {
        ranges_.back().end = static_cast<std::uint32_t>(end);
    } else {
        ranges_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
    }
}

void TextBuilder::mark_part(const Text& text, std::size_t begin, std::size_t end, std::size_t at) {
    for (const TextRange& range : text.ranges()) {
        const std::size_t from = std::max<std::size_t>(range.begin, begin);
        const std::size_t to = std::min<std::size_t>(range.end, end);
        if (from < to) mark(at + from - begin, at + to - begin);
    }
}

void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
    const std::size_t at = bytes_.size();
    append(text.bytes().substr(begin, end - begin), text.is_literal());
    if (!text.ranges().empty()) mark_part(text, begin, end, at);
}

std::size_t length_of(const Text& text) { return count_code_points(text.bytes()); }

std::size_t find_bytes(std::string_view bytes, std::string_view wanted, std::size_t from) {
    if (from > bytes.size()) return std::string_view::npos;
    if (wanted.empty()) return from;
    if (bytes.empty()) return std::string_view::npos;
    // std::string's own search is quadratic for a pair like "aaa...ab" in "aaa...a".
    const void* found = memmem(bytes.data() + from, bytes.size() - from, wanted.data(), wanted.size());
    if (found == nullptr) return std::string_view::npos;
    return static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data());
}

Text slice_bytes(Arena& arena, const Text& text, std::size_t begin, std::size_t end) {
    if (begin == 0 && end == text.size()) return text;
    const std::string_view bytes = text.bytes().substr(begin, end - begin);
    if (text.ranges().empty()) return Text(bytes, text.is_literal());
    ArenaVector<TextRange> ranges(arena);
    for (const TextRange& range : text.ranges()) {
        const std::size_t from = std::max<std::size_t>(range.begin, begin);
        const std::size_t to = std::min<std::size_t>(range.end, end);
        if (from < to) {
            ranges.push_back({static_cast<std::uint32_t>(from - begin), static_cast<std::uint32_t>(to - begin)});
        }
    }
    const bool all = ranges.size() == 1 && ranges[0].end - ranges[0].begin == bytes.size();
    return all ? Text(bytes, true) : Text(bytes, ranges.view());
}

std::size_t offset_of(std::string_view bytes, std::size_t index) {
    std::size_t at = 0;
    for (; index > 0 && at < bytes.size(); --index) at += code_point_at(bytes, at).bytes;
    return at;
}

bool is_python_space(char32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return is_white_space(c);
}

Text strip(Arena& arena, const Text& text, Side side) {
    return strip_if(arena, text, side, [](char32_t c) { return is_python_space(c); });
}

Text strip(Arena& arena, const Text& text, Side side, std::string_view characters) {
    return strip_if(arena, text, side, [&](char32_t c) {
        for (std::size_t at = 0; at < characters.size();) {
            const CodePoint point = code_point_at(characters, at);
            if (point.value == c) return true;
            at += point.bytes;
        }
        return false;
    });
}

Text replace(Arena& arena, const Text& text, const Text& old, const Text& with, std::int64_t count) {
    TextBuilder builder(arena);
    std::size_t done = 0;
    if (old.bytes().empty()) {
        // An empty string is found before every character and at the end.
        for (std::size_t at = 0; at <= text.bytes().size() && count != 0; --count) {
            builder.append(text, done, at);
            builder.append(with);
            done = at;
            at = at < text.bytes().size() ? at + code_point_at(text.bytes(), at).bytes : at + 1;
        }
    } else {
        for (; count != 0; --count) {
            const std::size_t found = find_bytes(text.bytes(), old.bytes(), done);
            if (found == std::string::npos) break;
            builder.append(text, done, found);
            builder.append(with);
            done = found + old.bytes().size();
        }
    }
    builder.append(text, done, text.bytes().size());
    return builder.take();
}

Texts split_on_space(Arena& arena, const Text& text, std::int64_t most, bool from_right) {
    struct Word {
        std::size_t begin;
        std::size_t end;
    };
    std::vector<Word> words;
    for (std::size_t at = 0; at < text.bytes().size();) {
        const CodePoint point = code_point_at(text.bytes(), at);
        const bool space = is_python_space(point.value);
        if (!space && (words.empty() || words.back().end != at)) words.push_back({at, at});
        if (!space) words.back().end = at + point.bytes;
        at += point.bytes;
    }
    Texts parts(arena);
    const auto limit = static_cast<std::size_t>(most);
    if (most < 0 || words.size() <= limit) {
        for (const Word& word : words) parts.push_back(slice_bytes(arena, text, word.begin, word.end));
    } else if (from_right) {
        const std::size_t kept = words.size() - limit;
        // What is left keeps the white space at its begin.
        parts.push_back(slice_bytes(arena, text, 0, words[kept - 1].end));
        for (std::size_t i = kept; i < words.size(); ++i) {
            parts.push_back(slice_bytes(arena, text, words[i].begin, words[i].end));
        }
    } else {
        for (std::size_t i = 0; i < limit; ++i) parts.push_back(slice_bytes(arena, text, words[i].begin, words[i].end));
        // What is left keeps the white space at its end.
        parts.push_back(slice_bytes(arena, text, words[limit].begin, text.bytes().size()));
    }
    return parts;
}

Texts split_on(Arena& arena, const Text& text, std::string_view separator, std::int64_t most, bool from_right) {
    Texts parts(arena);
    if (!from_right) {
        std::size_t done = 0;
        for (; most != 0; --most) {
            const std::size_t found = find_bytes(text.bytes(), separator, done);
            if (found == std::string::npos) break;
            parts.push_back(slice_bytes(arena, text, done, found));
            done = found + separator.size();
        }
        parts.push_back(slice_bytes(arena, text, done, text.bytes().size()));
        return parts;
    }
    std::size_t end = text.bytes().size();
    for (; most != 0 && end >= separator.size(); --most) {
        const std::size_t found = text.bytes().rfind(separator, end - separator.size());
        if (found == std::string::npos) break;
        parts.push_back(slice_bytes(arena, text, found + separator.size(), end));
        end = found;
    }
    parts.push_back(slice_bytes(arena, text, 0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
}

Texts split_lines(Arena& arena, const Text& text, bool keep_ends) {
    Texts lines(arena);
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.bytes().size();) {
        const CodePoint point = code_point_at(text.bytes(), at);
        const char32_t c = point.value;
        std::size_t next = at + point.bytes;
        const bool ends = (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (ends) {
            if (c == '\r' && next < text.bytes().size() && text.bytes()[next] == '\n') ++next;
            lines.push_back(slice_bytes(arena, text, begin, keep_ends ? next : at));
            begin = next;
        }
        at = next;
    }
    if (begin < text.bytes().size()) lines.push_back(slice_bytes(arena, text, begin, text.bytes().size()));
    return lines;
}

Text pad(Arena& arena, const Text& text, std::int64_t width, std::string_view fill, Side text_side) {
    const auto length = static_cast<std::int64_t>(length_of(text));
    if (width <= length) return text;
    const std::int64_t missing = width - length;
    std::int64_t left = 0;
    if (text_side == Side::right) left = missing;
    // str.center puts the odd one left only when the width is odd.
    if (text_side == Side::both) left = missing / 2 + (missing & width & 1);
    TextBuilder builder(arena);
    for (std::int64_t i = 0; i < left; ++i) builder.append(fill);
    builder.append(text);
    for (std::int64_t i = left; i < missing; ++i) builder.append(fill);
    return builder.take();
}

}  // namespace attune::jinja
