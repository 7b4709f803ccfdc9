#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/filter_tables.hpp"
#include "engine/text/jinja/operations.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>

namespace attune::jinja {
namespace {

/// The subject as text: str(value), as soft_str does.
Text soft(Context& context, const Value& value) {
    Text text = to_text(context.arena, value);
    context.charge_bytes(text.bytes().size());
    return text;
}

template <Text (*Change)(Arena&, const Text&)>
Value changed(Context& context, const Value& value, const Arguments&) {
    const Text text = soft(context, value);
    context.charge_characters(text.bytes().size());
    return Change(context.arena, text);
}

/// Jinja's own title: words begin after space, hyphen and opening brackets only.
Text words_title(Arena& arena, const Text& text) {
    TextBuilder builder(arena);
    std::size_t begin = 0;
    const auto put = [&](std::size_t end) {
        if (begin < end) builder.append(capitalize(arena, slice_bytes(arena, text, begin, end)));
    };
    for (std::size_t at = 0; at < text.bytes().size();) {
        const CodePoint point = code_point_at(text.bytes(), at);
        const std::size_t next = at + point.bytes;
        const bool separates = point.value == '-' || point.value == '(' || point.value == '{' || point.value == '[' ||
                               point.value == '<' || is_python_space(point.value);
        if (separates) {
            put(at);
            builder.append(text, at, next);
            begin = next;
        }
        at = next;
    }
    put(text.bytes().size());
    return builder.take();
}

Value trim(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("trim", arguments, {"chars"});
    const Text text = soft(context, value);
    if (!bound.has(0) || bound[0].is_none()) return strip(context.arena, text, Side::both);
    return strip(context.arena, text, Side::both, bound.text(0).bytes());
}

Value replace_filter(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
    const Text text = soft(context, value);
    const std::int64_t count = bound.has(2) && !bound[2].is_none() ? index_of(bound[2]) : -1;
    Text result =
        replace(context.arena, text, to_text(context.arena, bound[0]), to_text(context.arena, bound[1]), count);
    context.charge_bytes(result.bytes().size());
    return result;
}

Value center(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("center", arguments, {"width"});
    const std::int64_t width = bound.or_int(0, 80);
    if (width > 0) context.charge_bytes(static_cast<std::size_t>(width));
    return pad(context.arena, soft(context, value), width, " ", Side::both);
}

Value string(Context& context, const Value& value, const Arguments&) { return soft(context, value); }

Value escape(Context& context, const Value& value, const Arguments&) {
    const Text text = soft(context, value);
    context.charge_characters(text.bytes().size());
    return text.is_markup() ? text : escape_html(context.arena, text);
}

Value force_escape(Context& context, const Value& value, const Arguments&) {
    return escape_html(context.arena, soft(context, value));
}

Value safe(Context& context, const Value& value, const Arguments&) { return soft(context, value).with_markup(true); }

Value indent(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("indent", arguments, {"width", "first", "blank"});
    require_defined(value);
    if (!value.is_text()) type_error("can only concatenate str (not \"" + value.type_name() + "\") to str");
    Text step;
    if (bound.has(0) && bound[0].is_text()) {
        step = bound[0].text();
    } else {
        const std::int64_t width = std::max<std::int64_t>(bound.or_int(0, 4), 0);
        context.charge_bytes(static_cast<std::size_t>(width));
        step = pad(context.arena, step, width, " ", Side::right);
    }
    const bool blank = bound.or_bool(2, false);
    TextBuilder ended(context.arena);
    ended.append(value.text());
    ended.append("\n");
    const auto lines = split_lines(context.arena, ended.take(), false);
    context.charge_bytes(value.bytes().size() + lines.size() * step.bytes().size());
    TextBuilder builder(context.arena);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) builder.append("\n");
        const bool indented = i == 0 ? bound.or_bool(1, false) : blank || !lines[i].empty();
        if (indented) builder.append(step);
        builder.append(lines[i]);
    }
    return builder.take();
}

Value truncate(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
    const Text text = soft(context, value);
    const std::int64_t length = bound.or_int(0, 255);
    const Text end = bound.has(2) ? bound.text(2) : Text("...");
    const auto end_length = static_cast<std::int64_t>(length_of(end));
    const std::int64_t leeway = bound.has(3) && !bound[3].is_none() ? index_of(bound[3]) : 5;
    if (length < end_length) throw Failure("AssertionError", "expected length >= " + std::to_string(end_length));
    if (static_cast<std::int64_t>(length_of(text)) <= length + leeway) return text;
    Text kept =
        slice_bytes(context.arena, text, 0, offset_of(text.bytes(), static_cast<std::size_t>(length - end_length)));
    if (!bound.or_bool(1, false)) kept = split_on(context.arena, kept, " ", 1, true)[0];
    TextBuilder builder(context.arena);
    builder.append(kept);
    builder.append(end);
    return builder.take();
}

Value word_count(Context& context, const Value& value, const Arguments&) {
    const Text text = soft(context, value);
    std::int64_t words = 0;
    bool inside = false;
    for (std::size_t at = 0; at < text.bytes().size();) {
        const CodePoint point = code_point_at(text.bytes(), at);
        const bool word = is_word_character(point.value);
        words += word && !inside ? 1 : 0;
        inside = word;
        at += point.bytes;
    }
    return words;
}

/// Words are kept whole where they fit; a longer one is cut.
Value word_wrap(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("wordwrap", arguments, {"width", "break_long_words", "wrapstring"});
    const Text text = soft(context, value);
    const std::int64_t width = std::max<std::int64_t>(bound.or_int(0, 79), 1);
    const bool breaks = bound.or_bool(1, true);
    const Text wrap = bound.has(2) && bound[2].is_text() ? bound[2].text() : Text("\n");
    TextBuilder builder(context.arena);
    bool first_line = true;
    for (const Text& line : split_lines(context.arena, text, false)) {
        if (!first_line) builder.append(wrap);
        first_line = false;
        std::int64_t column = 0;
        for (Text word : split_on_space(context.arena, line, -1, false)) {
            auto length = static_cast<std::int64_t>(length_of(word));
            if (column > 0 && column + 1 + length > width) {
                builder.append(wrap);
                column = 0;
            } else if (column > 0) {
                builder.append(" ");
                ++column;
            }
            while (breaks && length > width) {
                const std::size_t cut = offset_of(word.bytes(), static_cast<std::size_t>(width));
                builder.append(word, 0, cut);
                builder.append(wrap);
                word = slice_bytes(context.arena, word, cut, word.bytes().size());
                length -= width;
            }
            context.charge();
            builder.append(word);
            column += length;
        }
    }
    return builder.take();
}

Value format(Context& context, const Value& value, const Arguments& arguments) {
    const Text text = soft(context, value);
    if (!arguments.keyword.empty()) {
        if (!arguments.positional.empty()) {
            throw Failure("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
        }
        Dict named(context.arena);
        for (const auto& [name, argument] : arguments.keyword) named.set(Value(name), argument);
        return format_percent(context, text, Value(&named));
    }
    return format_percent(context, text, make_tuple(Values(context.arena, arguments.positional)));
}

Value to_json_filter(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = bound.or_bool(0, false);
    if (bound.has(1) && !bound[1].is_none()) {
        if (bound[1].is_text()) {
            style.indent = bound[1].bytes();
        } else {
            const std::int64_t width = std::clamp<std::int64_t>(index_of(bound[1]), 0, 1000);
            style.indent = pad(context.arena, Text(), width, " ", Side::right).bytes();
        }
        style.item_separator = ",";
    }
    if (bound.has(2) && !bound[2].is_none()) {
        const auto separators = items_of(context, bound[2]);
        if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text()) {
            type_error("tojson() separators must be two texts");
        }
        style.item_separator = separators[0].bytes();
        style.key_separator = separators[1].bytes();
    }
    style.sort_keys = bound.or_bool(3, false);
    return to_json(context, value, style);
}

}  // namespace

const FilterTable& text_filters() {
    static const FilterTable table = {
        {"capitalize", changed<capitalize>},
        {"center", center},
        {"e", escape},
        {"escape", escape},
        {"forceescape", force_escape},
        {"format", format},
        {"indent", indent},
        {"lower", changed<lower>},
        {"replace", replace_filter},
        {"safe", safe},
        {"string", string},
        {"title", changed<words_title>},
        {"tojson", to_json_filter},
        {"trim", trim},
        {"truncate", truncate},
        {"upper", changed<upper>},
        {"wordcount", word_count},
        {"wordwrap", word_wrap},
    };
    return table;
}

Filter find_filter(std::string_view name) {
    for (const FilterTable* table : {&text_filters(), &value_filters(), &list_filters(), &order_filters()}) {
        const auto found = table->find(name);
        if (found != table->end()) return found->second;
    }
    return nullptr;
}

}  // namespace attune::jinja
