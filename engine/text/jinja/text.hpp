#pragma once

#include "engine/text/jinja/arena.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace attune::jinja {

/// a == b, for short texts: most names in a template are, and most pairs of them differ in length.
inline bool same_bytes(std::string_view a, std::string_view b) {
    const std::size_t size = a.size();
    if (size != b.size()) return false;
    const auto part = [](const char* from, auto word) {
        std::memcpy(&word, from, sizeof(word));
        return word;
    };
    if (size > 16) return a == b;
    if (size >= 8) {
        const std::size_t last = size - 8;
        return part(a.data(), std::uint64_t{}) == part(b.data(), std::uint64_t{}) &&
               part(a.data() + last, std::uint64_t{}) == part(b.data() + last, std::uint64_t{});
    }
    if (size >= 4) {
        const std::size_t last = size - 4;
        return part(a.data(), std::uint32_t{}) == part(b.data(), std::uint32_t{}) &&
               part(a.data() + last, std::uint32_t{}) == part(b.data() + last, std::uint32_t{});
    }
    for (std::size_t i = 0; i < size; ++i) {
        if (a[i] != b[i]) return false;
    }
    return true;
}

struct TextRange {
    std::uint32_t begin = 0;  ///< bytes
    std::uint32_t end = 0;
};

/// A string that knows which of its bytes came out of the request ("literal"): those never form control tokens.
/// Text that an operation makes from literal text is literal, unless the operation says better. A view: the bytes
/// belong to an arena, a request or the program itself.
class Text {
public:
    constexpr Text() = default;
    explicit constexpr Text(std::string_view bytes, bool is_literal = false)
        : data_(bytes.data()), size_(static_cast<std::uint32_t>(bytes.size())), is_literal_(is_literal) {}
    /// Literal where `ranges` say: ascending, apart from each other, some but not all of the text.
    Text(std::string_view bytes, std::span<const TextRange> ranges)
        : data_(bytes.data()),
          ranges_(ranges.data()),
          size_(static_cast<std::uint32_t>(bytes.size())),
          range_count_(static_cast<std::uint32_t>(ranges.size())) {}

    std::string_view bytes() const { return {data_, size_}; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    bool has_literal() const { return is_literal_ || range_count_ > 0; }
    /// All of it.
    bool is_literal() const { return is_literal_; }
    /// Where some of it is literal; empty when all or nothing is.
    std::span<const TextRange> ranges() const { return {ranges_, range_count_}; }
    /// HTML that is not to be escaped again.
    bool is_markup() const { return is_markup_; }
    Text with_markup(bool markup) const {
        Text text = *this;
        text.is_markup_ = markup;
        return text;
    }

private:
    const char* data_ = "";
    const TextRange* ranges_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint32_t range_count_ : 30 = 0;
    std::uint32_t is_literal_ : 1 = 0;
    std::uint32_t is_markup_ : 1 = 0;
};

/// Grows a Text part by part.
class TextBuilder {
public:
    explicit TextBuilder(Arena& arena) : bytes_(arena), ranges_(arena) {}
    void append(const Text& text) {
        const std::size_t at = bytes_.size();
        bytes_.append(text.bytes());
        if (text.is_literal()) mark(at, bytes_.size());
        if (!text.ranges().empty()) mark_part(text, 0, text.size(), at);
    }
    void append(const Text& text, std::size_t begin, std::size_t end);
    void append(std::string_view bytes, bool literal = false) {
        const std::size_t at = bytes_.size();
        bytes_.append(bytes);
        if (literal) mark(at, bytes_.size());
    }
    void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
    /// `write(bytes)` appends to what is there.
    template <class Write>
    void write(bool literal, Write&& write) {
        const std::size_t at = bytes_.size();
        write(bytes_);
        if (literal) mark(at, bytes_.size());
    }
    std::size_t size() const { return bytes_.size(); }
    Arena& arena() const { return bytes_.arena(); }
    /// What has been appended; the builder is not to be used again.
    Text take() const;

private:
    void mark(std::size_t begin, std::size_t end);
    void mark_part(const Text& text, std::size_t begin, std::size_t end, std::size_t at);

    ArenaVector<char> bytes_;
    ArenaVector<TextRange> ranges_;
};

using Texts = ArenaVector<Text>;

/// Python's str methods, over code points. What they make lives in `arena`; parts of a text share its bytes.
std::size_t length_of(const Text& text);
/// Offset of `wanted` in `bytes` at `from` or later, npos when there is none; linear whatever the two texts are.
std::size_t find_bytes(std::string_view bytes, std::string_view wanted, std::size_t from = 0);
Text slice_bytes(Arena& arena, const Text& text, std::size_t begin, std::size_t end);
/// Byte offset of code point `index`; index <= length.
std::size_t offset_of(std::string_view bytes, std::size_t index);
bool is_python_space(char32_t code_point);

Text upper(Arena& arena, const Text& text);
Text lower(Arena& arena, const Text& text);
Text capitalize(Arena& arena, const Text& text);
/// str.title(): each run of letters starts upper.
Text title(Arena& arena, const Text& text);
Text swap_case(Arena& arena, const Text& text);
enum class Side : std::uint8_t { left, right, both };
/// Strips white space.
Text strip(Arena& arena, const Text& text, Side side);
/// Strips any of the characters of `characters`.
Text strip(Arena& arena, const Text& text, Side side, std::string_view characters);
/// At most `count` times, from the left; negative: all.
Text replace(Arena& arena, const Text& text, const Text& old, const Text& with, std::int64_t count);
Texts split_on_space(Arena& arena, const Text& text, std::int64_t most, bool from_right);
Texts split_on(Arena& arena, const Text& text, std::string_view separator, std::int64_t most, bool from_right);
Texts split_lines(Arena& arena, const Text& text, bool keep_ends);
/// Pads to `width` code points with `fill`; `left` + `right` of the padding are filled as Python does for the method.
Text pad(Arena& arena, const Text& text, std::int64_t width, std::string_view fill, Side text_side);
/// Characters of HTML become entities.
Text escape_html(Arena& arena, const Text& text);

}  // namespace attune::jinja
