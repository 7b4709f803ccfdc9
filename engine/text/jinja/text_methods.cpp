#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/method_tables.hpp"
#include "engine/text/jinja/operations.hpp"
#include "engine/text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>

namespace attune::jinja {
namespace {

Value list_of(const Texts& parts) {
    Values items(parts.arena());
    items.reserve(parts.size());
    for (const Text& part : parts) items.push_back(part);
    return make_list(items);
}

Value tuple_of(Arena& arena, const Value& a, const Value& b, const Value& c) {
    Values items(arena);
    for (const Value& item : {a, b, c}) items.push_back(item);
    return make_tuple(items);
}

template <Text (*Change)(Arena&, const Text&)>
Value changed(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("str method", arguments, {});
    context.charge_characters(self.bytes().size());
    return Change(context.arena, self.text());
}

template <Side side>
Value stripped(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("strip", arguments, {""});
    context.charge_bytes(self.bytes().size());
    if (!bound.has(0) || bound[0].is_none()) return strip(context.arena, self.text(), side);
    return strip(context.arena, self.text(), side, bound.text(0).bytes());
}

template <bool from_right>
Value split(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("split", arguments, {"sep", "maxsplit"});
    const std::int64_t most = bound.or_int(1, -1);
    Texts parts(context.arena);
    if (!bound.has(0) || bound[0].is_none()) {
        parts = split_on_space(context.arena, self.text(), most, from_right);
    } else {
        if (bound.text(0).empty()) throw Failure("ValueError", "empty separator");
        parts = split_on(context.arena, self.text(), bound.text(0).bytes(), most, from_right);
    }
    context.charge(static_cast<std::int64_t>(parts.size()));
    context.charge_bytes(self.bytes().size());
    return list_of(parts);
}

Value split_lines_method(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("splitlines", arguments, {"keepends"});
    auto lines = split_lines(context.arena, self.text(), bound.or_bool(0, false));
    context.charge(static_cast<std::int64_t>(lines.size()));
    context.charge_bytes(self.bytes().size());
    return list_of(lines);
}

/// Calls `matches` with each of the texts of a str or tuple argument.
template <class Matches>
Value any_affix(const Bound& bound, Matches&& matches) {
    if (bound[0].is_tuple()) {
        for (const Value& affix : bound[0].list().items) {
            if (affix.is_text() && matches(affix.bytes())) return true;
        }
        return false;
    }
    return matches(bound.text(0).bytes());
}

/// The part of a text that start and end arguments (code points, Python's rules) select.
std::string_view window(const Value& self, const Bound& bound, std::size_t start_at) {
    const std::string_view bytes = self.bytes();
    if (!bound.has(start_at) && !bound.has(start_at + 1)) return bytes;
    const std::int64_t length = length_of(self);
    const auto place = [&](std::size_t i, std::int64_t fallback) {
        if (!bound.has(i) || bound[i].is_none()) return fallback;
        std::int64_t at = index_of(bound[i]);
        if (at < 0) at = std::max<std::int64_t>(at + length, 0);
        return std::min(at, length);
    };
    const std::size_t begin = offset_of(bytes, static_cast<std::size_t>(place(start_at, 0)));
    const std::size_t end = offset_of(bytes, static_cast<std::size_t>(place(start_at + 1, length)));
    return begin < end ? bytes.substr(begin, end - begin) : std::string_view();
}

Value starts_with(Context&, const Value& self, const Arguments& arguments) {
    const Bound bound("startswith", arguments, {"", "", ""}, 1);
    const std::string_view text = window(self, bound, 1);
    return any_affix(bound, [&](std::string_view affix) { return text.starts_with(affix); });
}

Value ends_with(Context&, const Value& self, const Arguments& arguments) {
    const Bound bound("endswith", arguments, {"", "", ""}, 1);
    const std::string_view text = window(self, bound, 1);
    return any_affix(bound, [&](std::string_view affix) { return text.ends_with(affix); });
}

template <bool from_right, bool must_exist>
Value find(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("find", arguments, {"", "", ""}, 1);
    const std::string_view text = window(self, bound, 1);
    context.charge_bytes(text.size());
    const std::string_view wanted = bound.text(0).bytes();
    const std::size_t found = from_right ? text.rfind(wanted) : find_bytes(text, wanted);
    if (found == std::string_view::npos) {
        if (must_exist) throw Failure("ValueError", "substring not found");
        return -1;
    }
    const std::string_view bytes = self.bytes();
    const auto offset = static_cast<std::size_t>(text.data() - bytes.data()) + found;
    return static_cast<std::int64_t>(count_code_points(bytes.substr(0, offset)));
}

Value count(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("count", arguments, {"", "", ""}, 1);
    const std::string_view text = window(self, bound, 1);
    context.charge_bytes(text.size());
    const std::string_view wanted = bound.text(0).bytes();
    if (wanted.empty()) return static_cast<std::int64_t>(count_code_points(text)) + 1;
    std::int64_t times = 0;
    for (std::size_t at = find_bytes(text, wanted); at != std::string_view::npos;
         at = find_bytes(text, wanted, at + wanted.size())) {
        ++times;
    }
    return times;
}

Value replaced(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
    Text text = replace(context.arena, self.text(), bound.text(0), bound.text(1), bound.or_int(2, -1));
    context.charge_bytes(self.bytes().size() + text.bytes().size());
    return text;
}

Value joined(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("join", arguments, {""}, 1);
    const auto items = items_of(context, bound[0]);
    TextBuilder builder(context.arena);
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) builder.append(self.text());
        const Value& item = items[i];
        if (!item.is_text()) {
            type_error("sequence item " + std::to_string(i) + ": expected str instance, " + item.type_name() +
                       " found");
        }
        context.charge();
        builder.append(item.text());
        context.charge_bytes(item.bytes().size());
        if (builder.size() > context.limits().output_bytes) context.charge_bytes(builder.size());
    }
    return builder.take();
}

template <bool from_right>
Value partitioned(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("partition", arguments, {""}, 1);
    context.charge_bytes(self.bytes().size());
    const Text& text = self.text();
    const Text& separator = bound.text(0);
    if (separator.bytes().empty()) throw Failure("ValueError", "empty separator");
    const std::size_t found =
        from_right ? text.bytes().rfind(separator.bytes()) : find_bytes(text.bytes(), separator.bytes());
    if (found == std::string_view::npos)
        return from_right ? tuple_of(context.arena, "", "", self) : tuple_of(context.arena, self, "", "");
    const std::size_t after = found + separator.bytes().size();
    return tuple_of(context.arena, slice_bytes(context.arena, text, 0, found),
                    slice_bytes(context.arena, text, found, after),
                    slice_bytes(context.arena, text, after, text.bytes().size()));
}

Value remove_prefix(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("removeprefix", arguments, {""}, 1);
    const std::string_view prefix = bound.text(0).bytes();
    if (!self.bytes().starts_with(prefix)) return self;
    return slice_bytes(context.arena, self.text(), prefix.size(), self.bytes().size());
}

Value remove_suffix(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("removesuffix", arguments, {""}, 1);
    const std::string_view suffix = bound.text(0).bytes();
    if (!self.bytes().ends_with(suffix)) return self;
    return slice_bytes(context.arena, self.text(), 0, self.bytes().size() - suffix.size());
}

std::int64_t checked_width(Context& context, const Bound& bound) {
    const std::int64_t width = index_of(bound[0]);
    if (width > 0) context.charge_bytes(static_cast<std::size_t>(width));
    return width;
}

template <Side side>
Value padded(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("pad", arguments, {"", ""}, 1);
    const std::string_view fill = bound.has(1) ? bound.text(1).bytes() : " ";
    if (count_code_points(fill) != 1) type_error("The fill character must be exactly one character long");
    return pad(context.arena, self.text(), checked_width(context, bound), fill, side);
}

Value zero_filled(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("zfill", arguments, {""}, 1);
    const std::int64_t width = checked_width(context, bound);
    const Text& text = self.text();
    const bool has_sign = text.bytes().starts_with('-') || text.bytes().starts_with('+');
    if (!has_sign) return pad(context.arena, text, width, "0", Side::right);
    TextBuilder builder(context.arena);
    builder.append(text, 0, 1);
    builder.append(
        pad(context.arena, slice_bytes(context.arena, text, 1, text.bytes().size()), width - 1, "0", Side::right));
    return builder.take();
}

Value expand_tabs(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("expandtabs", arguments, {"tabsize"});
    const std::int64_t size = bound.or_int(0, 8);
    const Text& text = self.text();
    TextBuilder builder(context.arena);
    std::int64_t column = 0;
    for (std::size_t at = 0; at < text.bytes().size();) {
        const CodePoint point = code_point_at(text.bytes(), at);
        if (point.value == '\t') {
            const std::int64_t spaces = size > 0 ? size - column % size : 0;
            context.charge_bytes(static_cast<std::size_t>(spaces));
            for (std::int64_t i = 0; i < spaces; ++i) builder.append(" ");
            column += spaces;
        } else {
            builder.append(text, at, at + point.bytes);
            column = point.value == '\n' || point.value == '\r' ? 0 : column + 1;
        }
        at += point.bytes;
        context.charge_bytes(builder.size() > context.limits().output_bytes ? builder.size() : 0);
    }
    return builder.take();
}

/// All characters satisfy `is_one`, and there is one.
template <class Predicate>
Value all_are(const Value& self, Predicate&& is_one) {
    const std::string_view bytes = self.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = code_point_at(bytes, at);
        if (!is_one(point.value)) return false;
        at += point.bytes;
    }
    return !bytes.empty();
}

bool is_decimal(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND; }

bool is_digit_like(char32_t c) {
    // Superscripts and circled digits are digits to Python though no decimals.
    return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

Value is_alpha(Context&, const Value& self, const Arguments&) { return all_are(self, is_letter); }
Value is_digits(Context&, const Value& self, const Arguments&) { return all_are(self, is_digit_like); }
Value is_decimals(Context&, const Value& self, const Arguments&) { return all_are(self, is_decimal); }
Value is_numerics(Context&, const Value& self, const Arguments&) { return all_are(self, is_numeric); }
Value is_alphanumeric(Context&, const Value& self, const Arguments&) {
    return all_are(self, [](char32_t c) { return is_letter(c) || is_numeric(c); });
}
Value is_spaces(Context&, const Value& self, const Arguments&) { return all_are(self, is_python_space); }
Value is_ascii(Context&, const Value& self, const Arguments&) {
    return self.bytes().empty() ? Value(true) : all_are(self, [](char32_t c) { return c < 0x80; });
}
Value is_identifier(Context&, const Value& self, const Arguments&) {
    const bool begins_with_digit = !self.bytes().empty() && is_numeric(code_point_at(self.bytes(), 0).value);
    return begins_with_digit ? Value(false) : all_are(self, is_word_character);
}

template <bool upper_case>
Value is_case(Context&, const Value& self, const Arguments&) {
    bool cased = false;
    const std::string_view bytes = self.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = code_point_at(bytes, at);
        const auto c = static_cast<utf8proc_int32_t>(point.value);
        const bool is_upper = utf8proc_tolower(c) != c;
        const bool is_lower = !is_upper && (utf8proc_toupper(c) != c || c == 0xDF);
        if (upper_case ? is_lower : is_upper) return false;
        cased = cased || is_upper || is_lower;
        at += point.bytes;
    }
    return cased;
}

Value is_title(Context& context, const Value& self, const Arguments&) {
    return title(context.arena, self.text()).bytes() == self.bytes() &&
           upper(context.arena, self.text()).bytes() != lower(context.arena, self.text()).bytes();
}

Value formatted(Context& context, const Value& self, const Arguments& arguments) {
    return format_braces(context, self.text(), arguments);
}

Value formatted_map(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("format_map", arguments, {""}, 1);
    if (!bound[0].is_dict()) type_error("format_map() argument must be a mapping");
    ArenaVector<Keyword> named(context.arena);
    for (const auto& [name, value] : bound[0].dict().entries()) {
        if (name.is_text()) named.push_back({name.bytes(), value});
    }
    return format_braces(context, self.text(), {{}, named.view()});
}

}  // namespace

const MethodTable& text_methods() {
    static const MethodTable methods = {
        {"upper", changed<upper>},
        {"lower", changed<lower>},
        {"casefold", changed<lower>},
        {"capitalize", changed<capitalize>},
        {"title", changed<title>},
        {"swapcase", changed<swap_case>},
        {"strip", stripped<Side::both>},
        {"lstrip", stripped<Side::left>},
        {"rstrip", stripped<Side::right>},
        {"split", split<false>},
        {"rsplit", split<true>},
        {"splitlines", split_lines_method},
        {"startswith", starts_with},
        {"endswith", ends_with},
        {"find", find<false, false>},
        {"rfind", find<true, false>},
        {"index", find<false, true>},
        {"rindex", find<true, true>},
        {"count", count},
        {"replace", replaced},
        {"join", joined},
        {"partition", partitioned<false>},
        {"rpartition", partitioned<true>},
        {"removeprefix", remove_prefix},
        {"removesuffix", remove_suffix},
        {"ljust", padded<Side::left>},
        {"rjust", padded<Side::right>},
        {"center", padded<Side::both>},
        {"zfill", zero_filled},
        {"expandtabs", expand_tabs},
        {"isalpha", is_alpha},
        {"isdigit", is_digits},
        {"isdecimal", is_decimals},
        {"isnumeric", is_numerics},
        {"isalnum", is_alphanumeric},
        {"isspace", is_spaces},
        {"isascii", is_ascii},
        {"isidentifier", is_identifier},
        {"isupper", is_case<true>},
        {"islower", is_case<false>},
        {"istitle", is_title},
        {"format", formatted},
        {"format_map", formatted_map},
    };
    return methods;
}

}  // namespace attune::jinja
