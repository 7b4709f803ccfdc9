#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/token.hpp"
#include "engine/text/unicode.hpp"

#include <array>
#include <charconv>
#include <cstdlib>

namespace attune::jinja {
namespace {

[[noreturn]] void syntax_error(const std::string& message) { throw Failure("TemplateSyntaxError", message); }

std::string with_plain_newlines(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') {
            out += source[i];
            continue;
        }
        out += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
    return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/// Python's unicode-escape decoding of a string literal's inside.
class Unescaper {
public:
    explicit Unescaper(std::string_view text) : text_(text) {}

    std::string run() {
        while (at_ < text_.size()) {
            if (text_[at_] != '\\' || at_ + 1 >= text_.size()) {
                out_ += text_[at_++];
                continue;
            }
            const char escape = text_[at_ + 1];
            at_ += 2;
            one(escape);
        }
        return std::move(out_);
    }

private:
    void one(char escape) {
        constexpr std::string_view kNames = "\\'\"abfnrtv\n";
        constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
        if (const std::size_t found = kNames.find(escape); found != std::string_view::npos) {
            if (escape != '\n') out_ += kValues[found];
        } else if (escape >= '0' && escape <= '7') {
            char32_t value = static_cast<char32_t>(escape - '0');
            for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
                value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
            }
            append_utf8(out_, value);
        } else if (escape == 'x' || escape == 'u' || escape == 'U') {
            unicode(escape);
        } else if (escape == 'N') {
            syntax_error("\\N{...} names are not supported");
        } else {
            out_ += '\\';
            out_ += escape;
        }
    }
    void unicode(char escape) {
        char32_t value = hex(escape == 'x' ? 2 : escape == 'u' ? 4 : 8, escape);
        // Two halves of a pair are one character; a lone half has no UTF-8.
        const bool high = value >= 0xD800 && value <= 0xDBFF;
        if (high && text_.substr(at_).starts_with("\\u")) {
            const std::size_t back = at_;
            at_ += 2;
            const char32_t low = hex(4, 'u');
            if (low >= 0xDC00 && low <= 0xDFFF) {
                value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
            } else {
                at_ = back;
            }
        }
        if (value >= 0xD800 && value <= 0xDFFF) value = 0xFFFD;
        append_utf8(out_, value);
    }
    char32_t hex(int digits, char escape) {
        char32_t value = 0;
        for (int i = 0; i < digits; ++i) {
            const int digit = at_ < text_.size() ? hex_value(text_[at_]) : -1;
            if (digit < 0) syntax_error(std::string("truncated \\") + escape + " escape");
            value = value * 16 + static_cast<char32_t>(digit);
            ++at_;
        }
        if (value > 0x10FFFF) syntax_error("illegal Unicode character");
        return value;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    std::string out_;
};

class Lexer {
public:
    explicit Lexer(std::string source) : source_(std::move(source)) {
        if (source_.ends_with('\n')) source_.pop_back();
    }

    std::vector<Token> run() {
        while (at_ < source_.size()) text_until_tag();
        tokens_.push_back({TokenKind::end, {}, {}});
        return std::move(tokens_);
    }

private:
    std::string_view rest() const { return std::string_view(source_).substr(at_); }
    bool rest_starts(std::string_view with) const { return rest().starts_with(with); }

    void text_until_tag() {
        std::size_t tag = at_;
        while (tag < source_.size() && !is_tag(tag)) ++tag;
        std::string_view text = std::string_view(source_).substr(at_, tag - at_);
        if (tag == source_.size()) {
            put_data(text);
            at_ = tag;
            return;
        }
        const char kind = source_[tag + 1];
        const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
        put_data(trimmed_before_tag(text, kind, sign));
        at_ = tag + 2;
        if (sign == '-' || sign == '+') ++at_;
        line_starting_ = false;
        if (kind == '{') {
            tokens_.push_back({TokenKind::variable_begin, {}, {}});
            inside_tag("}}", TokenKind::variable_end);
        } else if (kind == '#') {
            skip_comment();
        } else if (begin_raw()) {
            raw();
        } else {
            tokens_.push_back({TokenKind::block_begin, {}, {}});
            inside_tag("%}", TokenKind::block_end);
        }
    }
    bool is_tag(std::size_t at) const {
        if (source_[at] != '{' || at + 1 >= source_.size()) return false;
        const char next = source_[at + 1];
        return next == '{' || next == '%' || next == '#';
    }
    /// `-` eats all white space before the tag; lstrip_blocks eats the tag's own indentation.
    std::string_view trimmed_before_tag(std::string_view text, char kind, char sign) const {
        if (sign == '-') {
            while (!text.empty()) {
                const CodePoint point = code_point_before(text, text.size());
                if (!is_python_space(point.value)) break;
                text.remove_suffix(point.bytes);
            }
            return text;
        }
        if (sign == '+' || kind == '{') return text;
        const std::size_t newline = text.rfind('\n');
        const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
        if (begin == 0 && !line_starting_) return text;
        for (std::size_t at = begin; at < text.size();) {
            const CodePoint point = code_point_at(text, at);
            if (!is_python_space(point.value)) return text;
            at += point.bytes;
        }
        return text.substr(0, begin);
    }
    void put_data(std::string_view text) {
        if (!text.empty()) tokens_.push_back({TokenKind::data, std::string(text), {}});
    }
    void skip_space() {
        while (at_ < source_.size()) {
            const CodePoint point = code_point_at(source_, at_);
            if (!is_python_space(point.value)) return;
            at_ += point.bytes;
        }
    }
    /// At a closing tag: `+` leaves what follows, `-` eats all white space, else one newline goes (trim_blocks).
    bool take_end(std::string_view end, bool trims_newline) {
        const std::size_t before = at_;
        const bool plus = trims_newline && rest_starts("+");
        const bool minus = rest_starts("-");
        if (plus || minus) ++at_;
        if (!rest_starts(end)) {
            at_ = before;
            return false;
        }
        at_ += end.size();
        if (minus) {
            skip_space();
        } else if (!plus && trims_newline && rest_starts("\n")) {
            ++at_;
        }
        line_starting_ = source_[at_ - 1] == '\n';
        return true;
    }
    void skip_comment() {
        for (; at_ < source_.size(); ++at_) {
            if (take_end("#}", true)) return;
        }
        syntax_error("Missing end of comment tag");
    }
    /// After "{%": whether this is a raw block's begin, which is then behind us.
    bool begin_raw() {
        const std::size_t before = at_;
        skip_space();
        if (rest_starts("raw")) {
            at_ += 3;
            skip_space();
            if (rest_starts("%}") || rest_starts("-%}")) return take_end("%}", false);
        }
        at_ = before;
        return false;
    }
    void raw() {
        for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
            const std::size_t begin = at_;
            const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
            at_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
            skip_space();
            if (rest_starts("endraw")) {
                at_ += 6;
                skip_space();
                const auto text = trimmed_before_tag(std::string_view(source_).substr(begin, tag - begin), '%', sign);
                if (take_end("%}", true)) {
                    put_data(text);
                    return;
                }
            }
            at_ = begin;
        }
        syntax_error("Missing end of raw directive");
    }

    void inside_tag(std::string_view end, TokenKind end_kind) {
        std::string open;  // brackets waiting for their partner
        while (at_ < source_.size()) {
            if (open.empty() && take_end(end, end_kind == TokenKind::block_end)) {
                tokens_.push_back({end_kind, {}, {}});
                return;
            }
            const CodePoint point = code_point_at(source_, at_);
            if (is_python_space(point.value)) {
                at_ += point.bytes;
            } else if (is_digit(source_[at_])) {
                number();
            } else if (is_word_character(point.value)) {
                name();
            } else if (source_[at_] == '\'' || source_[at_] == '"') {
                string();
            } else {
                oper(open);
            }
        }
        tokens_.push_back({TokenKind::end, {}, {}});
    }
    void name() {
        const std::size_t begin = at_;
        while (at_ < source_.size()) {
            const CodePoint point = code_point_at(source_, at_);
            if (!is_word_character(point.value)) break;
            at_ += point.bytes;
        }
        tokens_.push_back({TokenKind::name, source_.substr(begin, at_ - begin), {}});
    }
    void string() {
        const char quote = source_[at_];
        std::size_t end = at_ + 1;
        while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
        if (end >= source_.size()) {
            syntax_error("unexpected char " + repr_of(Value(std::string_view(&quote, 1))) + " at " +
                         std::to_string(at_));
        }
        tokens_.push_back(
            {TokenKind::string, Unescaper(std::string_view(source_).substr(at_ + 1, end - at_ - 1)).run(), {}});
        at_ = end + 1;
    }
    /// Digits with single underscores between them, from `at`; the end, or `at` when there are none.
    std::size_t digits_end(std::size_t at) const {
        const std::size_t begin = at;
        while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && at > begin))) ++at;
        while (at > begin && source_[at - 1] == '_') --at;
        return at;
    }
    void number() {
        if (source_[at_] == '0' && at_ + 1 < source_.size()) {
            const char base = static_cast<char>(source_[at_ + 1] | 0x20);
            if (base == 'x') return based_integer(16);
            if (base == 'o') return based_integer(8);
            if (base == 'b') return based_integer(2);
        }
        const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
        std::size_t end = digits_end(at_);
        bool floating = false;
        if (!after_dot) {
            if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
                end = digits_end(end + 1);
                floating = true;
            }
            if (end < source_.size() && (source_[end] | 0x20) == 'e') {
                std::size_t digits = end + 1;
                if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
                if (digits < source_.size() && is_digit(source_[digits])) {
                    end = digits_end(digits);
                    floating = true;
                }
            }
        }
        std::string text = source_.substr(at_, end - at_);
        std::erase(text, '_');
        at_ = end;
        if (floating) {
            tokens_.push_back({TokenKind::floating, text, Value(std::strtod(text.c_str(), nullptr))});
        } else {
            tokens_.push_back({TokenKind::integer, text, Value(decimal(text))});
        }
    }
    static Integer decimal(const std::string& text) {
        Integer value = 0;
        for (const char c : text) {
            if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, c - '0', &value)) {
                syntax_error("a number is too large: " + text);
            }
        }
        return value;
    }
    void based_integer(int base) {
        const std::size_t begin = at_;
        at_ += 2;
        Integer value = 0;
        bool any = false;
        for (; at_ < source_.size(); ++at_) {
            if (source_[at_] == '_') continue;
            const int digit = hex_value(source_[at_]);
            if (digit < 0 || digit >= base) break;
            any = true;
            if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value)) {
                syntax_error("a number is too large");
            }
        }
        if (!any) syntax_error("unexpected char at " + std::to_string(begin));
        tokens_.push_back({TokenKind::integer, source_.substr(begin, at_ - begin), Value(value)});
    }
    void oper(std::string& open) {
        constexpr std::array<std::string_view, 6> kTwo = {"**", "//", "==", "!=", ">=", "<="};
        constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
        std::string symbol;
        for (const std::string_view two : kTwo) {
            if (rest_starts(two)) symbol = two;
        }
        if (symbol.empty() && kOne.find(source_[at_]) != std::string_view::npos) symbol = source_[at_];
        if (symbol.empty()) {
            const std::size_t bytes = code_point_at(source_, at_).bytes;
            syntax_error("unexpected char " + repr_of(Value(std::string_view(source_).substr(at_, bytes))) + " at " +
                         std::to_string(at_));
        }
        if (symbol == "{") open += '}';
        if (symbol == "(") open += ')';
        if (symbol == "[") open += ']';
        if (symbol == "}" || symbol == ")" || symbol == "]") {
            if (open.empty()) syntax_error("unexpected '" + symbol + "'");
            if (open.back() != symbol[0]) {
                syntax_error("unexpected '" + symbol + "', expected '" + open.back() + "'");
            }
            open.pop_back();
        }
        at_ += symbol.size();
        tokens_.push_back({TokenKind::op, symbol, {}});
    }

    std::string source_;
    std::size_t at_ = 0;
    bool line_starting_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(with_plain_newlines(source)).run(); }

std::string described(const Token& token) {
    switch (token.kind) {
        case TokenKind::data:
            return "template data / text";
        case TokenKind::variable_begin:
            return "begin of print statement";
        case TokenKind::variable_end:
            return "end of print statement";
        case TokenKind::block_begin:
            return "begin of statement block";
        case TokenKind::block_end:
            return "end of statement block";
        case TokenKind::end:
            return "end of template";
        case TokenKind::string:
            return "string";
        case TokenKind::integer:
            return "integer";
        case TokenKind::floating:
            return "float";
        case TokenKind::name:
        case TokenKind::op:
            return token.text;
    }
    return {};
}

}  // namespace attune::jinja
