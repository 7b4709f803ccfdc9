#include "engine/text/jinja/from_json.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/unicode.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

namespace attune::jinja {
namespace {

constexpr int kMaxDepth = 128;

/// A reader of its own, since templates render within microseconds: strings without escapes are not copied.
class Reader {
public:
    Reader(Arena& arena, std::string_view json)
        : arena_(arena), begin_(json.data()), at_(begin_), end_(begin_ + json.size()) {}

    Value read() {
        skip_space();
        const Value made = value(0);
        skip_space();
        if (at_ != end_) fail("unexpected text behind the value");
        return made;
    }

private:
    [[noreturn]] void fail(const char* what) const {
        throw Failure("ValueError",
                      "not valid JSON: " + std::string(what) + " at byte " + std::to_string(at_ - begin_));
    }
    void skip_space() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
    }
    bool skip(char c) {
        if (at_ == end_ || *at_ != c) return false;
        ++at_;
        return true;
    }
    Value word(std::string_view text, const Value& meaning) {
        if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(text)) fail("unexpected text");
        at_ += text.size();
        return meaning;
    }
    Value value(int depth) {
        if (at_ == end_) fail("unexpected end");
        switch (*at_) {
            case '"':
                ++at_;
                return string();
            case '{':
                ++at_;
                return object(depth + 1);
            case '[':
                ++at_;
                return array(depth + 1);
            case 't':
                return word("true", true);
            case 'f':
                return word("false", false);
            case 'n':
                return word("null", Value());
            default:
                return number();
        }
    }
    Value array(int depth) {
        if (depth > kMaxDepth) fail("nested too deeply");
        Values items(arena_);
        skip_space();
        if (skip(']')) return make_list(items, true);
        do {
            skip_space();
            items.push_back(value(depth));
            skip_space();
        } while (skip(','));
        if (!skip(']')) fail("expected , or ]");
        return make_list(items, true);
    }
    Value object(int depth) {
        if (depth > kMaxDepth) fail("nested too deeply");
        Dict* dict = arena_.make<Dict>(arena_);
        dict->from_request = true;
        skip_space();
        if (skip('}')) return dict;
        dict->reserve(4);
        do {
            skip_space();
            if (!skip('"')) fail("expected a key");
            const Value key = string();
            skip_space();
            if (!skip(':')) fail("expected :");
            skip_space();
            const Value made = value(depth);
            if (dict->find(key.bytes()) == nullptr) {
                dict->add(key, made);
            } else {
                dict->set(key, made);  // the last of several counts
            }
            skip_space();
        } while (skip(','));
        if (!skip('}')) fail("expected , or }");
        return dict;
    }

    // ---- strings ----
    /// Up to the next quote or backslash, or the end.
    std::string_view plain_part() {
        const char* const from = at_;
        std::uint64_t high_bits = 0;
        // Eight bytes at a time while none of them is a quote, a backslash or below 0x20.
        while (end_ - at_ >= 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, at_, sizeof(word));
            constexpr std::uint64_t kOnes = 0x0101010101010101;
            const auto has_zero = [](std::uint64_t bytes) { return (bytes - kOnes) & ~bytes & (0x80 * kOnes); };
            const std::uint64_t below_space = (word - 0x20 * kOnes) & ~word & (0x80 * kOnes);
            if ((has_zero(word ^ ('"' * kOnes)) | has_zero(word ^ ('\\' * kOnes)) | below_space) != 0) break;
            high_bits |= word;
            at_ += 8;
        }
        while (at_ != end_ && *at_ != '"' && *at_ != '\\') {
            const auto byte = static_cast<unsigned char>(*at_);
            if (byte < 0x20) fail("a control character in a string");
            high_bits |= byte;
            ++at_;
        }
        const std::string_view part(from, static_cast<std::size_t>(at_ - from));
        const bool ascii = (high_bits & 0x8080808080808080) == 0;
        if (!ascii && !is_valid_utf8(part)) fail("ill-formed UTF-8");
        return part;
    }
    /// Behind the opening quote.
    Value string() {
        const std::string_view plain = plain_part();
        if (skip('"')) return Text(plain, true);
        std::string text(plain);
        unescape(text);
        return Text(arena_.copy(text), true);
    }
    /// The rest of a string from its first escape on.
    void unescape(std::string& text) {
        while (at_ != end_ && *at_ != '"') {
            if (*at_ == '\\') {
                ++at_;
                escape(text);
                continue;
            }
            text += plain_part();
        }
        if (!skip('"')) fail("unexpected end of a string");
    }
    void escape(std::string& text) {
        if (at_ == end_) fail("unexpected end of a string");
        constexpr std::string_view kLetters = "\"\\/bfnrt";
        constexpr std::string_view kCharacters = "\"\\/\b\f\n\r\t";
        const char letter = *at_++;
        if (letter == 'u') {
            append_utf8(text, escaped_code_point());
            return;
        }
        const std::size_t found = kLetters.find(letter);
        if (found == std::string_view::npos) fail("an unknown escape");
        text += kCharacters[found];
    }
    char32_t escaped_code_point() {
        const char32_t first = hex4();
        if (first < 0xD800 || first > 0xDFFF) return first;
        if (first > 0xDBFF || !skip('\\') || !skip('u')) fail("half of a surrogate pair");
        const char32_t second = hex4();
        if (second < 0xDC00 || second > 0xDFFF) fail("half of a surrogate pair");
        return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    }
    char32_t hex4() {
        if (end_ - at_ < 4) fail("an unfinished escape");
        std::uint32_t unit = 0;
        const auto [end, error] = std::from_chars(at_, at_ + 4, unit, 16);
        if (error != std::errc() || end != at_ + 4) fail("an unfinished escape");
        at_ += 4;
        return unit;
    }

    // ---- numbers ----
    static bool is_digit(char c) { return c >= '0' && c <= '9'; }
    void skip_digits() {
        if (at_ == end_ || !is_digit(*at_)) fail("unexpected text");
        while (at_ != end_ && is_digit(*at_)) ++at_;
    }
    Value number() {
        const char* const from = at_;
        skip('-');
        if (!skip('0')) skip_digits();
        bool whole = true;
        if (skip('.')) {
            whole = false;
            skip_digits();
        }
        if (skip('e') || skip('E')) {
            whole = false;
            if (!skip('+')) skip('-');
            skip_digits();
        }
        const std::string_view text(from, static_cast<std::size_t>(at_ - from));
        if (whole) {
            if (const auto made = integer(text)) return *made;
        }
        // Also integers of more than 128 bits.
        const double made = std::strtod(std::string(text).c_str(), nullptr);
        if (!std::isfinite(made)) fail("a number out of range before");
        return made;
    }
    static std::optional<Integer> integer(std::string_view text) {
        const bool negative = text.starts_with('-');
        Integer made = 0;
        for (const char c : text.substr(negative ? 1 : 0)) {
            if (__builtin_mul_overflow(made, 10, &made) || __builtin_add_overflow(made, c - '0', &made)) {
                return std::nullopt;
            }
        }
        return negative ? -made : made;
    }

    Arena& arena_;
    const char* begin_;
    const char* at_;
    const char* end_;
};

}  // namespace

Value value_from_json(Arena& arena, std::string_view json) {
    if (json.size() > std::numeric_limits<std::uint32_t>::max() / 2)
        throw Failure("ValueError", "the JSON is too large");
    return Reader(arena, json).read();
}

}  // namespace attune::jinja
