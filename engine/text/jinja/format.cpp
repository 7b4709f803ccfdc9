#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace attune::jinja {
namespace {

/// The widest field and the finest precision that a format may ask for.
constexpr std::int64_t kMaxWidth = 100'000;
constexpr std::int64_t kMaxPrecision = 300;

struct Spec {
    char fill = ' ';
    char align = 0;  // < > ^ =, 0: by type
    char sign = '-';
    bool alternate = false;
    char thousands = 0;
    std::int64_t width = 0;
    std::int64_t precision = -1;
    char type = 0;
};

Integer as_integer(const Value& value, char type) {
    require_defined(value);
    if (value.is_float() && std::isfinite(value.floating()) && std::fabs(value.floating()) < 1e38) {
        return static_cast<Integer>(value.floating());
    }
    if (value.is_integral()) return value.integer();
    type_error(std::string("%") + type + " format: a real number is required, not " + value.type_name());
}

std::string digits_of(Integer value, int base, bool upper_case) {
    if (value == 0) return "0";
    std::string digits;
    while (value != 0) {
        const int digit = static_cast<int>(value % base);
        digits += static_cast<char>(digit < 10 ? '0' + digit : (upper_case ? 'A' : 'a') + digit - 10);
        value /= base;
    }
    std::reverse(digits.begin(), digits.end());
    return digits;
}

std::string float_digits(double value, char type, std::int64_t precision) {
    std::array<char, 800> text{};
    const char lower_type = static_cast<char>(type | 0x20);
    const int places = static_cast<int>(precision < 0 ? 6 : std::min(precision, kMaxPrecision));
    if (lower_type == 'f') std::snprintf(text.data(), text.size(), "%.*f", places, value);
    if (lower_type == 'e') std::snprintf(text.data(), text.size(), "%.*e", places, value);
    if (lower_type == 'g') std::snprintf(text.data(), text.size(), "%.*g", places == 0 ? 1 : places, value);
    std::string digits = text.data();
    if (type == 'F' || type == 'E' || type == 'G') {
        std::transform(digits.begin(), digits.end(), digits.begin(),
                       [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    }
    return digits;
}

void group_thousands(std::string& digits, char separator) {
    std::size_t end = digits.find_first_not_of("0123456789");
    if (end == std::string::npos) end = digits.size();
    for (std::size_t at = end; at > 3;) {
        at -= 3;
        digits.insert(at, 1, separator);
    }
}

/// Sign, prefix and digits put together to the width.
std::string placed_number(const Spec& spec, bool negative, const std::string& prefix, std::string digits) {
    if (spec.thousands != 0) group_thousands(digits, spec.thousands);
    std::string head;
    if (negative) head = "-";
    if (!negative && spec.sign != '-') head = std::string(1, spec.sign);
    head += prefix;
    const auto length = static_cast<std::int64_t>(head.size() + digits.size());
    const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(spec.width - length, 0));
    const char align = spec.align == 0 ? '>' : spec.align;
    if (align == '=') return head + std::string(missing, spec.fill) + digits;
    if (align == '<') return head + digits + std::string(missing, spec.fill);
    if (align == '^') {
        return std::string(missing / 2, spec.fill) + head + digits + std::string(missing - missing / 2, spec.fill);
    }
    return std::string(missing, spec.fill) + head + digits;
}

Text placed_text(const Spec& spec, Text text) {
    if (spec.precision >= 0) {
        text = slice_bytes(text, 0, offset_of(text.bytes, static_cast<std::size_t>(spec.precision)));
    }
    const auto length = static_cast<std::int64_t>(length_of(text));
    const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(spec.width - length, 0));
    std::size_t left = 0;
    if (spec.align == '>') left = missing;
    if (spec.align == '^') left = missing / 2;
    TextBuilder builder;
    builder.append(std::string(left, spec.fill));
    builder.append(text);
    builder.append(std::string(missing - left, spec.fill));
    return builder.take();
}

std::string formatted_integer(const Spec& spec, Integer value) {
    const bool negative = value < 0;
    const Integer size = negative ? -value : value;
    switch (spec.type) {
        case 'x':
            return placed_number(spec, negative, spec.alternate ? "0x" : "", digits_of(size, 16, false));
        case 'X':
            return placed_number(spec, negative, spec.alternate ? "0X" : "", digits_of(size, 16, true));
        case 'o':
            return placed_number(spec, negative, spec.alternate ? "0o" : "", digits_of(size, 8, false));
        case 'b':
            return placed_number(spec, negative, spec.alternate ? "0b" : "", digits_of(size, 2, false));
        default: {
            std::string digits = integer_text(size);
            // %.5d asks for at least five digits.
            const auto shown = static_cast<std::int64_t>(digits.size());
            if (spec.precision > shown) digits.insert(0, static_cast<std::size_t>(spec.precision - shown), '0');
            return placed_number(spec, negative, "", digits);
        }
    }
}

std::string formatted_float(const Spec& spec, double value) {
    const bool negative = std::signbit(value) && !std::isnan(value);
    return placed_number(spec, negative, "", float_digits(std::fabs(value), spec.type, spec.precision));
}

void check(const Spec& spec) {
    if (spec.width > kMaxWidth || spec.precision > kMaxWidth) throw Failure("ValueError", "a format field is too wide");
}

// ---- % ----

class PercentFormat {
public:
    PercentFormat(Context& context, const Text& format, const Value& argument)
        : context_(context), format_(format), argument_(argument) {}

    Text run() {
        const std::string& bytes = format_.bytes;
        std::size_t done = 0;
        for (at_ = bytes.find('%'); at_ != std::string::npos; at_ = bytes.find('%', at_)) {
            out_.append(format_, done, at_);
            ++at_;
            one();
            done = at_;
            if (out_.size() > context_.limits().output_bytes) context_.charge_bytes(out_.size());
        }
        out_.append(format_, done, bytes.size());
        const bool all_used = !argument_.is_tuple() || used_ == argument_.list().items.size();
        const bool single_used = argument_.is_tuple() || argument_.is_dict() || used_ > 0;
        if (!all_used || !single_used) type_error("not all arguments converted during string formatting");
        context_.charge_bytes(out_.size());
        return out_.take();
    }

private:
    char peek() const {
        if (at_ >= format_.bytes.size()) throw Failure("ValueError", "incomplete format");
        return format_.bytes[at_];
    }
    std::int64_t number() {
        if (peek() == '*') {
            ++at_;
            return std::clamp<std::int64_t>(index_of(next()), -kMaxWidth, kMaxWidth);
        }
        std::int64_t value = 0;
        while (peek() >= '0' && peek() <= '9')
            value = std::min(value * 10 + (format_.bytes[at_++] - '0'), kMaxWidth + 1);
        return value;
    }
    Value next() {
        if (named_ != nullptr) return *std::exchange(named_, nullptr);
        if (!argument_.is_tuple()) {
            if (used_++ > 0) type_error("not enough arguments for format string");
            return argument_;
        }
        if (used_ >= argument_.list().items.size()) type_error("not enough arguments for format string");
        return argument_.list().items[used_++];
    }
    void one() {
        context_.charge();
        if (peek() == '(') name();
        Spec spec;
        for (;; ++at_) {
            const char flag = peek();
            if (flag == '-') {
                spec.align = '<';
            } else if (flag == '+') {
                spec.sign = '+';
            } else if (flag == ' ') {
                if (spec.sign != '+') spec.sign = ' ';
            } else if (flag == '#') {
                spec.alternate = true;
            } else if (flag == '0') {
                zero_ = true;
            } else {
                break;
            }
        }
        spec.width = number();
        if (spec.width < 0) {
            spec.align = '<';
            spec.width = -spec.width;
        }
        if (peek() == '.') {
            ++at_;
            spec.precision = std::max<std::int64_t>(number(), 0);
        }
        while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
        spec.type = peek();
        ++at_;
        check(spec);
        convert(spec);
        zero_ = false;
    }
    void name() {
        const std::size_t close = format_.bytes.find(')', at_);
        if (close == std::string::npos) throw Failure("ValueError", "incomplete format key");
        if (!argument_.is_dict()) type_error("format requires a mapping");
        const std::string key = format_.bytes.substr(at_ + 1, close - at_ - 1);
        named_ = argument_.dict().find(key);
        if (named_ == nullptr) throw Failure("KeyError", "'" + key + "'");
        at_ = close + 1;
    }
    void convert(Spec spec) {
        if (spec.type == '%') {
            out_.append("%");
            return;
        }
        const bool text = spec.type == 's' || spec.type == 'r' || spec.type == 'a';
        if (text) {
            const Value value = next();
            if (spec.align == 0) spec.align = '>';
            out_.append(placed_text(spec, spec.type == 's' ? to_text(value) : to_repr(value)));
            return;
        }
        if (zero_ && spec.align != '<') {
            spec.align = '=';
            spec.fill = '0';
        }
        switch (spec.type) {
            case 'd':
            case 'i':
            case 'u':
                out_.append(formatted_integer(spec, as_integer(next(), 'd')));
                return;
            case 'x':
            case 'X':
            case 'o':
                out_.append(formatted_integer(spec, as_integer(next(), spec.type)));
                return;
            case 'e':
            case 'E':
            case 'f':
            case 'F':
            case 'g':
            case 'G': {
                const Value value = next();
                require_defined(value);
                if (!value.is_number()) type_error("must be real number, not " + value.type_name());
                out_.append(formatted_float(spec, value.number()));
                return;
            }
            case 'c':
                character(spec);
                return;
            default:
                throw Failure("ValueError", std::string("unsupported format character '") + spec.type + "'");
        }
    }
    void character(const Spec& spec) {
        const Value value = next();
        Text one;
        if (value.is_integral()) {
            const Integer point = value.integer();
            if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
                throw Failure("OverflowError", "%c arg not in range");
            }
            append_utf8(one.bytes, static_cast<char32_t>(point));
        } else {
            one = to_text(value);
            if (!value.is_text() || length_of(one) != 1) type_error("%c requires int or char");
        }
        Spec placed = spec;
        placed.precision = -1;
        if (placed.align == 0) placed.align = '>';
        out_.append(placed_text(placed, std::move(one)));
    }

    Context& context_;
    const Text& format_;
    const Value& argument_;
    TextBuilder out_;
    std::size_t at_ = 0;
    std::size_t used_ = 0;
    const Value* named_ = nullptr;
    bool zero_ = false;
};

// ---- str.format ----

class BraceFormat {
public:
    BraceFormat(Context& context, const Arguments& arguments) : context_(context), arguments_(arguments) {}

    Text run(const Text& format, int depth) {
        TextBuilder out;
        const std::string& bytes = format.bytes;
        for (std::size_t at = 0; at < bytes.size();) {
            const char c = bytes[at];
            const bool doubled = at + 1 < bytes.size() && bytes[at + 1] == c;
            if (c != '{' && c != '}') {
                std::size_t next = bytes.find_first_of("{}", at);
                if (next == std::string::npos) next = bytes.size();
                out.append(format, at, next);
                at = next;
            } else if (doubled) {
                out.append(format, at, at + 1);
                at += 2;
            } else if (c == '}') {
                throw Failure("ValueError", "Single '}' encountered in format string");
            } else {
                const std::size_t close = closing(bytes, at);
                out.append(field(slice_bytes(format, at + 1, close), depth));
                at = close + 1;
            }
            if (out.size() > context_.limits().output_bytes) context_.charge_bytes(out.size());
        }
        context_.charge_bytes(out.size());
        return out.take();
    }

private:
    static std::size_t closing(const std::string& bytes, std::size_t open) {
        int depth = 0;
        for (std::size_t at = open; at < bytes.size(); ++at) {
            if (bytes[at] == '{') ++depth;
            if (bytes[at] == '}' && --depth == 0) return at;
        }
        throw Failure("ValueError", "expected '}' before end of string");
    }
    Text field(const Text& text, int depth) {
        context_.charge();
        const std::string& bytes = text.bytes;
        std::size_t name_end = bytes.find_first_of("!:");
        if (name_end == std::string::npos) name_end = bytes.size();
        Value value = look_up(bytes.substr(0, name_end));
        std::size_t at = name_end;
        if (at < bytes.size() && bytes[at] == '!') {
            const char conversion = at + 1 < bytes.size() ? bytes[at + 1] : 0;
            if (conversion == 'r' || conversion == 'a') {
                value = Value(to_repr(value));
            } else if (conversion == 's') {
                value = Value(to_text(value));
            } else {
                throw Failure("ValueError", "unknown conversion in format string");
            }
            at += 2;
        }
        Text spec;
        if (at < bytes.size() && bytes[at] == ':') {
            if (depth > 1) throw Failure("ValueError", "Max string recursion exceeded");
            spec = run(slice_bytes(text, at + 1, bytes.size()), depth + 1);
        }
        return formatted(value, spec.bytes);
    }
    Value look_up(const std::string& path) {
        std::size_t end = path.find_first_of(".[");
        if (end == std::string::npos) end = path.size();
        Value value = first(path.substr(0, end));
        while (end < path.size()) {
            if (path[end] == '.') {
                std::size_t next = path.find_first_of(".[", end + 1);
                if (next == std::string::npos) next = path.size();
                value = attribute_of(context_, value, path.substr(end + 1, next - end - 1));
                end = next;
            } else if (path[end] == '[') {
                const std::size_t close = path.find(']', end);
                if (close == std::string::npos) throw Failure("ValueError", "Missing ']' in format string");
                const std::string key = path.substr(end + 1, close - end - 1);
                value = item_of(context_, value, is_number(key) ? Value(std::stoi(key)) : Value(key));
                end = close + 1;
            } else {
                throw Failure("ValueError", "Only '.' or '[' may follow ']' in format field specifier");
            }
        }
        return value;
    }
    static bool is_number(const std::string& text) {
        return !text.empty() && text.size() < 9 &&
               std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    }
    Value first(const std::string& name) {
        if (name.empty() || is_number(name)) {
            const std::size_t index = name.empty() ? automatic_++ : static_cast<std::size_t>(std::stoi(name));
            if (index >= arguments_.positional.size()) {
                throw Failure("IndexError",
                              "Replacement index " + std::to_string(index) + " out of range for positional args tuple");
            }
            return arguments_.positional[index];
        }
        for (const auto& [key, value] : arguments_.keyword) {
            if (key == name) return value;
        }
        throw Failure("KeyError", "'" + name + "'");
    }
    static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }
    static Spec parse(std::string_view text) {
        Spec spec;
        std::size_t at = 0;
        if (text.size() >= 2 && is_align(text[1])) {
            spec.fill = text[0];
            spec.align = text[1];
            at = 2;
        } else if (!text.empty() && is_align(text[0])) {
            spec.align = text[0];
            at = 1;
        }
        const auto is = [&](char c) { return at < text.size() && text[at] == c; };
        const auto number = [&] {
            std::int64_t value = 0;
            while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
                value = std::min(value * 10 + (text[at++] - '0'), kMaxWidth + 1);
            }
            return value;
        };
        if (is('+') || is('-') || is(' ')) spec.sign = text[at++];
        if (is('#')) {
            spec.alternate = true;
            ++at;
        }
        if (is('0')) {
            if (spec.align == 0) {
                spec.align = '=';
                spec.fill = '0';
            }
            ++at;
        }
        spec.width = number();
        if (is(',') || is('_')) spec.thousands = text[at++];
        if (is('.')) {
            ++at;
            spec.precision = number();
        }
        if (at < text.size()) spec.type = text[at++];
        if (at < text.size()) throw Failure("ValueError", "Invalid format specifier");
        check(spec);
        return spec;
    }
    Text formatted(const Value& value, const std::string& spec_text) {
        if (spec_text.empty()) return to_text(value);
        require_defined(value);
        Spec spec = parse(spec_text);
        if (value.is_text()) {
            if (spec.type != 0 && spec.type != 's') bad_code(spec, value);
            return placed_text(spec, value.text());
        }
        if (!value.is_number()) type_error("unsupported format string passed to " + value.type_name() + ".__format__");
        if (value.is_integral() && (spec.type == 0 || spec.type == 'd' || spec.type == 'n' || spec.type == 'x' ||
                                    spec.type == 'X' || spec.type == 'o' || spec.type == 'b')) {
            return Text(formatted_integer(spec, value.integer()));
        }
        double number = value.number();
        if (spec.type == 0) {
            const std::string shown = spec.precision < 0 ? repr_of_float(std::fabs(number))
                                                         : float_digits(std::fabs(number), 'g', spec.precision);
            return Text(placed_number(spec, std::signbit(number), "", shown));
        }
        if (spec.type == '%') {
            number *= 100;
            const std::string digits = float_digits(std::fabs(number), 'f', spec.precision) + "%";
            return Text(placed_number(spec, std::signbit(number), "", digits));
        }
        if (std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) bad_code(spec, value);
        return Text(formatted_float(spec, number));
    }
    [[noreturn]] static void bad_code(const Spec& spec, const Value& value) {
        throw Failure("ValueError", std::string("Unknown format code '") + spec.type + "' for object of type '" +
                                        value.type_name() + "'");
    }

    Context& context_;
    const Arguments& arguments_;
    std::size_t automatic_ = 0;
};

}  // namespace

Text format_percent(Context& context, const Text& format, const Value& argument) {
    return PercentFormat(context, format, argument).run();
}

Text format_braces(Context& context, const Text& format, const Arguments& arguments) {
    return BraceFormat(context, arguments).run(format, 0);
}

}  // namespace attune::jinja
