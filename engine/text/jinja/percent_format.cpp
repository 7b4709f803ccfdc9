#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/format.hpp"
#include "engine/text/jinja/operations.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attune::jinja {
namespace {

Integer as_integer(const Value& value, char type) {
    require_defined(value);
    if (value.is_float() && std::isfinite(value.floating()) && std::fabs(value.floating()) < 1e38) {
        return static_cast<Integer>(value.floating());
    }
    if (value.is_integral()) return value.integer();
    type_error(std::string("%") + type + " format: a real number is required, not " + value.type_name());
}

class PercentFormat {
public:
    PercentFormat(Context& context, const Text& format, const Value& argument)
        : context_(context), format_(format), argument_(argument), out_(context.arena) {}

    Text run() {
        const std::string_view bytes = format_.bytes();
        std::size_t done = 0;
        for (at_ = bytes.find('%'); at_ != std::string_view::npos; at_ = bytes.find('%', at_)) {
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
        if (at_ >= format_.bytes().size()) throw Failure("ValueError", "incomplete format");
        return format_.bytes()[at_];
    }
    std::int64_t number() {
        if (peek() == '*') {
            ++at_;
            return std::clamp<std::int64_t>(index_of(next()), -kMaxWidth, kMaxWidth);
        }
        std::int64_t value = 0;
        while (peek() >= '0' && peek() <= '9')
            value = std::min(value * 10 + (format_.bytes()[at_++] - '0'), kMaxWidth + 1);
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
        FormatSpec spec;
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
        const std::size_t close = format_.bytes().find(')', at_);
        if (close == std::string_view::npos) throw Failure("ValueError", "incomplete format key");
        if (!argument_.is_dict()) type_error("format requires a mapping");
        const std::string_view key = format_.bytes().substr(at_ + 1, close - at_ - 1);
        named_ = argument_.dict().find(key);
        if (named_ == nullptr) throw Failure("KeyError", "'" + std::string(key) + "'");
        at_ = close + 1;
    }
    void convert(FormatSpec spec) {
        if (spec.type == '%') {
            out_.append("%");
            return;
        }
        const bool text = spec.type == 's' || spec.type == 'r' || spec.type == 'a';
        if (text) {
            const Value value = next();
            if (spec.align == 0) spec.align = '>';
            out_.append(
                placed_text(context_.arena, spec,
                            spec.type == 's' ? to_text(context_.arena, value) : to_repr(context_.arena, value)));
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
    void character(const FormatSpec& spec) {
        const Value value = next();
        Text one;
        if (value.is_integral()) {
            const Integer point = value.integer();
            if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
                throw Failure("OverflowError", "%c arg not in range");
            }
            std::string utf8;
            append_utf8(utf8, static_cast<char32_t>(point));
            one = Text(context_.arena.copy(utf8));
        } else {
            one = to_text(context_.arena, value);
            if (!value.is_text() || length_of(one) != 1) type_error("%c requires int or char");
        }
        FormatSpec placed = spec;
        placed.precision = -1;
        if (placed.align == 0) placed.align = '>';
        out_.append(placed_text(context_.arena, placed, one));
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

}  // namespace

Text format_percent(Context& context, const Text& format, const Value& argument) {
    return PercentFormat(context, format, argument).run();
}

}  // namespace attune::jinja
