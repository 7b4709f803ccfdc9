#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/format.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>
#include <cmath>

namespace attune::jinja {
namespace {

/// str.format
class BraceFormat {
public:
    BraceFormat(Context& context, const Arguments& arguments) : context_(context), arguments_(arguments) {}

    Text run(const Text& format, int depth) {
        TextBuilder out(context_.arena);
        const std::string_view bytes = format.bytes();
        for (std::size_t at = 0; at < bytes.size();) {
            const char c = bytes[at];
            const bool doubled = at + 1 < bytes.size() && bytes[at + 1] == c;
            if (c != '{' && c != '}') {
                std::size_t next = bytes.find_first_of("{}", at);
                if (next == std::string_view::npos) next = bytes.size();
                out.append(format, at, next);
                at = next;
            } else if (doubled) {
                out.append(format, at, at + 1);
                at += 2;
            } else if (c == '}') {
                throw Failure("ValueError", "Single '}' encountered in format string");
            } else {
                const std::size_t close = closing(bytes, at);
                out.append(field(slice_bytes(context_.arena, format, at + 1, close), depth));
                at = close + 1;
            }
            if (out.size() > context_.limits().output_bytes) context_.charge_bytes(out.size());
        }
        context_.charge_bytes(out.size());
        return out.take();
    }

private:
    static std::size_t closing(std::string_view bytes, std::size_t open) {
        int depth = 0;
        for (std::size_t at = open; at < bytes.size(); ++at) {
            if (bytes[at] == '{') ++depth;
            if (bytes[at] == '}' && --depth == 0) return at;
        }
        throw Failure("ValueError", "expected '}' before end of string");
    }
    Text field(const Text& text, int depth) {
        context_.charge();
        const std::string_view bytes = text.bytes();
        std::size_t name_end = bytes.find_first_of("!:");
        if (name_end == std::string_view::npos) name_end = bytes.size();
        Value value = look_up(bytes.substr(0, name_end));
        std::size_t at = name_end;
        if (at < bytes.size() && bytes[at] == '!') {
            const char conversion = at + 1 < bytes.size() ? bytes[at + 1] : 0;
            if (conversion == 'r' || conversion == 'a') {
                value = Value(to_repr(context_.arena, value));
            } else if (conversion == 's') {
                value = Value(to_text(context_.arena, value));
            } else {
                throw Failure("ValueError", "unknown conversion in format string");
            }
            at += 2;
        }
        Text spec;
        if (at < bytes.size() && bytes[at] == ':') {
            if (depth > 1) throw Failure("ValueError", "Max string recursion exceeded");
            spec = run(slice_bytes(context_.arena, text, at + 1, bytes.size()), depth + 1);
        }
        return formatted(value, spec.bytes());
    }
    Value look_up(std::string_view path) {
        std::size_t end = path.find_first_of(".[");
        if (end == std::string_view::npos) end = path.size();
        Value value = first(path.substr(0, end));
        while (end < path.size()) {
            if (path[end] == '.') {
                std::size_t next = path.find_first_of(".[", end + 1);
                if (next == std::string_view::npos) next = path.size();
                value = attribute_of(context_, value, path.substr(end + 1, next - end - 1));
                end = next;
            } else if (path[end] == '[') {
                const std::size_t close = path.find(']', end);
                if (close == std::string_view::npos) throw Failure("ValueError", "Missing ']' in format string");
                const std::string_view key = path.substr(end + 1, close - end - 1);
                value = item_of(context_, value, is_number(key) ? Value(std::stoi(std::string(key))) : Value(key));
                end = close + 1;
            } else {
                throw Failure("ValueError", "Only '.' or '[' may follow ']' in format field specifier");
            }
        }
        return value;
    }
    static bool is_number(std::string_view text) {
        return !text.empty() && text.size() < 9 &&
               std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    }
    Value first(std::string_view name) {
        if (name.empty() || is_number(name)) {
            const std::size_t index =
                name.empty() ? automatic_++ : static_cast<std::size_t>(std::stoi(std::string(name)));
            if (index >= arguments_.positional.size()) {
                throw Failure("IndexError",
                              "Replacement index " + std::to_string(index) + " out of range for positional args tuple");
            }
            return arguments_.positional[index];
        }
        for (const auto& [key, value] : arguments_.keyword) {
            if (key == name) return value;
        }
        throw Failure("KeyError", "'" + std::string(name) + "'");
    }
    static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }
    static FormatSpec parse(std::string_view text) {
        FormatSpec spec;
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
    Text formatted(const Value& value, std::string_view spec_text) {
        if (spec_text.empty()) return to_text(context_.arena, value);
        require_defined(value);
        FormatSpec spec = parse(spec_text);
        if (value.is_text()) {
            if (spec.type != 0 && spec.type != 's') bad_code(spec, value);
            return placed_text(context_.arena, spec, value.text());
        }
        if (!value.is_number()) type_error("unsupported format string passed to " + value.type_name() + ".__format__");
        if (value.is_integral() && (spec.type == 0 || spec.type == 'd' || spec.type == 'n' || spec.type == 'x' ||
                                    spec.type == 'X' || spec.type == 'o' || spec.type == 'b')) {
            return made(formatted_integer(spec, value.integer()));
        }
        double number = value.number();
        if (spec.type == 0) {
            const std::string shown = spec.precision < 0 ? repr_of_float(std::fabs(number))
                                                         : float_digits(std::fabs(number), 'g', spec.precision);
            return made(placed_number(spec, std::signbit(number), "", shown));
        }
        if (spec.type == '%') {
            number *= 100;
            const std::string digits = float_digits(std::fabs(number), 'f', spec.precision) + "%";
            return made(placed_number(spec, std::signbit(number), "", digits));
        }
        if (std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) bad_code(spec, value);
        return made(formatted_float(spec, number));
    }
    Text made(const std::string& text) const { return Text(context_.arena.copy(text)); }
    [[noreturn]] static void bad_code(const FormatSpec& spec, const Value& value) {
        throw Failure("ValueError", std::string("Unknown format code '") + spec.type + "' for object of type '" +
                                        value.type_name() + "'");
    }

    Context& context_;
    const Arguments& arguments_;
    std::size_t automatic_ = 0;
};

}  // namespace

Text format_braces(Context& context, const Text& format, const Arguments& arguments) {
    return BraceFormat(context, arguments).run(format, 0);
}

}  // namespace attune::jinja
