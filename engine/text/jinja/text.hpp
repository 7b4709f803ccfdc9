#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attune::jinja {

struct TextRange {
    std::uint32_t begin = 0;  ///< bytes
    std::uint32_t end = 0;
};

/// A string that knows which of its bytes came out of the request ("literal"): those never form control tokens.
/// Text that an operation makes from literal text is literal, unless the operation says better.
struct Text {
    std::string bytes;
    std::vector<TextRange> literal;  ///< ascending, apart from each other
    bool markup = false;             ///< HTML that is not to be escaped again

    Text() = default;
    explicit Text(std::string text, bool is_literal = false) : bytes(std::move(text)) {
        if (is_literal && !bytes.empty()) literal.push_back({0, static_cast<std::uint32_t>(bytes.size())});
    }
    bool has_literal() const { return !literal.empty(); }
};

/// Grows a Text part by part.
class TextBuilder {
public:
    void append(const Text& text) { append(text, 0, text.bytes.size()); }
    void append(const Text& text, std::size_t begin, std::size_t end);
    void append(std::string_view bytes, bool literal = false);
    std::size_t size() const { return text_.bytes.size(); }
    const Text& text() const { return text_; }
    Text take() { return std::move(text_); }

private:
    void mark(std::size_t begin, std::size_t end);
    Text text_;
};

/// Python's str methods, over code points.
std::size_t length_of(const Text& text);
/// Offset of `wanted` in `bytes` at `from` or later, npos when there is none; linear whatever the two texts are.
std::size_t find_bytes(std::string_view bytes, std::string_view wanted, std::size_t from = 0);
Text slice_bytes(const Text& text, std::size_t begin, std::size_t end);
/// Byte offset of code point `index`; index <= length.
std::size_t offset_of(std::string_view bytes, std::size_t index);
bool is_python_space(char32_t code_point);

Text upper(const Text& text);
Text lower(const Text& text);
Text capitalize(const Text& text);
/// str.title(): each run of letters starts upper.
Text title(const Text& text);
Text swap_case(const Text& text);
enum class Side : std::uint8_t { left, right, both };
/// Strips white space.
Text strip(const Text& text, Side side);
/// Strips any of the characters of `characters`.
Text strip(const Text& text, Side side, std::string_view characters);
/// At most `count` times, from the left; negative: all.
Text replace(const Text& text, const Text& old, const Text& with, std::int64_t count);
std::vector<Text> split_on_space(const Text& text, std::int64_t most, bool from_right);
std::vector<Text> split_on(const Text& text, std::string_view separator, std::int64_t most, bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
/// Pads to `width` code points with `fill`; `left` + `right` of the padding are filled as Python does for the method.
Text pad(const Text& text, std::int64_t width, std::string_view fill, Side text_side);
/// Characters of HTML become entities.
Text escape_html(const Text& text);

}  // namespace attune::jinja
