#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/filter_tables.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace attune::jinja {

Value make_generator(const Values& items) {
    Sequence sequence;
    sequence.items = items.view();
    return items.arena().make<Sequence>(sequence);
}

std::span<const Value> taken(Context& context, const Value& value) {
    const auto items = items_of(context, value);
    context.charge(static_cast<std::int64_t>(items.size()) / 2);
    return items;
}

Value attribute_path(Context& context, const Value& item, const Value& attribute,
                     const std::optional<Value>& fallback) {
    if (!attribute.is_text()) return attribute.is_none() ? item : item_of(context, item, attribute);
    Value current = item;
    for (const Text& part : split_on(context.arena, attribute.text(), ".", -1, false)) {
        context.charge();
        const std::string_view name = part.bytes();
        const bool number = !name.empty() && name.size() < 10 &&
                            std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
        current = item_of(context, current, number ? Value(std::stoi(std::string(name))) : Value(part));
        if (fallback && current.is_undefined()) current = *fallback;
    }
    return current;
}

namespace {

Value join(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("join", arguments, {"d", "attribute"});
    const Text separator = bound.has(0) ? to_text(context.arena, bound[0]) : Text();
    TextBuilder builder(context.arena);
    bool first = true;
    for (const Value& item : taken(context, value)) {
        if (!first) builder.append(separator);
        first = false;
        const Value part = bound.has(1) ? attribute_path(context, item, bound[1], std::nullopt) : item;
        builder.append(to_text(context.arena, part));
        if (builder.size() > context.limits().output_bytes) context.charge_bytes(builder.size());
    }
    context.charge_bytes(builder.size());
    return builder.take();
}

Value first(Context& context, const Value& value, const Arguments&) {
    if (value.is_text()) {
        const Value item = item_of(context, value, Value(0));
        return item.is_undefined() ? undefined_because(context.arena, "No first item, sequence was empty.") : item;
    }
    const auto items = items_of(context, value);
    return items.empty() ? undefined_because(context.arena, "No first item, sequence was empty.") : items.front();
}

Value last(Context& context, const Value& value, const Arguments&) {
    if (value.is_sequence() && value.sequence().used_up_by_reading) {
        type_error("'generator' object is not reversible");
    }
    const auto items = items_of(context, value);
    return items.empty() ? undefined_because(context.arena, "No last item, sequence was empty.") : items.back();
}

Value length(Context&, const Value& value, const Arguments&) { return length_of(value); }

Value list(Context& context, const Value& value, const Arguments&) {
    const bool from_request = value.is_list_or_tuple() && value.list().from_request;
    return context.arena.make<const List>(List{taken(context, value), false, from_request});
}

Value reverse(Context& context, const Value& value, const Arguments&) {
    if (value.is_text()) return slice_of(context, value, Value(), Value(), Value(-1));
    Values items(context.arena, taken(context, value));
    std::reverse(items.begin(), items.end());
    if (value.is_sequence() && value.sequence().used_up_by_reading) return make_list(items);
    return make_generator(items);
}

Value items(Context& context, const Value& value, const Arguments&) {
    if (value.is_undefined()) return make_generator(Values(context.arena));
    if (!value.is_dict()) type_error("Can only get item pairs from a mapping.");
    return make_generator(Values(context.arena, taken(context, call_method(context, value, "items"))));
}

Value sum(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("sum", arguments, {"attribute", "start"});
    Value total = bound.or_value(1, Value(0));
    for (const Value& item : taken(context, value)) {
        const Value part = bound.has(0) ? attribute_path(context, item, bound[0], std::nullopt) : item;
        total = apply(context, BinaryOperator::add, total, part);
    }
    return total;
}

Value batch(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
    const auto size = static_cast<std::size_t>(std::clamp<std::int64_t>(index_of(bound[0]), 1, 1'000'000));
    Values rows(context.arena);
    Values row(context.arena);
    for (const Value& item : taken(context, value)) {
        if (row.size() == size) rows.push_back(make_list(std::exchange(row, Values(context.arena))));
        row.push_back(item);
    }
    if (!row.empty()) {
        if (bound.has(1) && !bound[1].is_none()) {
            context.charge(static_cast<std::int64_t>(size));
            while (row.size() < size) row.push_back(bound[1]);
        }
        rows.push_back(make_list(row));
    }
    return make_generator(rows);
}

Value slice(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
    const auto all = taken(context, value);
    const std::int64_t count = index_of(bound[0]);
    if (count == 0) throw Failure("ZeroDivisionError", "integer division or modulo by zero");
    context.charge(count);
    const std::int64_t each = count > 0 ? static_cast<std::int64_t>(all.size()) / count : 0;
    const std::int64_t longer = count > 0 ? static_cast<std::int64_t>(all.size()) % count : 0;
    Values columns(context.arena);
    std::size_t at = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto length = static_cast<std::size_t>(each + (i < longer ? 1 : 0));
        Values column(context.arena, all.subspan(at, length));
        if (bound.has(1) && !bound[1].is_none() && i >= longer) column.push_back(bound[1]);
        columns.push_back(make_list(column));
        at += length;
    }
    return make_generator(columns);
}

Value map(Context& context, const Value& value, const Arguments& arguments) {
    if (!is_true(value)) return make_generator(Values(context.arena));
    Values results(context.arena);
    const auto keyword = arguments.keyword;
    const auto named = [&](std::string_view name) {
        return std::find_if(keyword.begin(), keyword.end(), [&](const auto& k) { return k.name == name; });
    };
    if (arguments.positional.empty() && named("attribute") != keyword.end()) {
        const Bound bound("map", arguments, {"attribute", "default"});
        const std::optional<Value> fallback =
            bound.has(1) && !bound[1].is_none() ? std::optional<Value>(bound[1]) : std::nullopt;
        for (const Value& item : taken(context, value)) {
            results.push_back(attribute_path(context, item, bound[0], fallback));
        }
        return make_generator(results);
    }
    if (arguments.positional.empty() || !arguments.positional[0].is_text()) {
        throw Failure("FilterArgumentError", "map requires a filter argument");
    }
    const std::string_view name = arguments.positional[0].bytes();
    const Filter filter = find_filter(name);
    if (filter == nullptr) throw Failure("TemplateRuntimeError", "No filter named '" + std::string(name) + "'.");
    const Arguments rest{arguments.positional.subspan(1), keyword};
    const Context::Nesting nesting(context);
    for (const Value& item : taken(context, value)) {
        context.charge();
        results.push_back(filter(context, item, rest));
    }
    return make_generator(results);
}

/// select, reject, selectattr, rejectattr: keeps the items whose test gives `keep`.
template <bool keep, bool by_attribute>
Value select(Context& context, const Value& value, const Arguments& arguments) {
    if (!is_true(value)) return make_generator(Values(context.arena));
    auto positional = arguments.positional;
    Value attribute;
    if (by_attribute) {
        if (positional.empty()) throw Failure("FilterArgumentError", "Missing parameter for attribute name");
        attribute = positional[0];
        positional = positional.subspan(1);
    }
    Test test = nullptr;
    if (!positional.empty()) {
        const std::string name(to_text(context.arena, positional[0]).bytes());
        test = find_test(name);
        if (test == nullptr) throw Failure("TemplateRuntimeError", "No test named '" + name + "'.");
        positional = positional.subspan(1);
    }
    const Arguments rest{positional, arguments.keyword};
    Values kept(context.arena);
    for (const Value& item : taken(context, value)) {
        context.charge();
        const Value subject = by_attribute ? attribute_path(context, item, attribute, std::nullopt) : item;
        const bool passed = test == nullptr ? is_true(subject) : test(context, subject, rest);
        if (passed == keep) kept.push_back(item);
    }
    return make_generator(kept);
}

Value xml_attributes(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("xmlattr", arguments, {"autospace"});
    TextBuilder builder(context.arena);
    for (const Value& pair : taken(context, call_method(context, value, "items"))) {
        const Value& name = pair.list().items[0];
        const Value& content = pair.list().items[1];
        if (content.is_none() || content.is_undefined()) continue;
        const Text shown = to_text(context.arena, name);
        if (shown.bytes().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
            throw Failure("ValueError", "Invalid character in attribute name: " + repr_of(name));
        }
        if (builder.size() > 0 || bound.or_bool(0, true)) builder.append(" ");
        builder.append(escape_html(context.arena, shown));
        builder.append("=\"");
        builder.append(escape_html(context.arena, to_text(context.arena, content)));
        builder.append("\"");
    }
    return builder.take();
}

}  // namespace

const FilterTable& list_filters() {
    static const FilterTable table = {
        {"batch", batch},
        {"count", length},
        {"first", first},
        {"items", items},
        {"join", join},
        {"last", last},
        {"length", length},
        {"list", list},
        {"map", map},
        {"reject", select<false, false>},
        {"rejectattr", select<false, true>},
        {"reverse", reverse},
        {"select", select<true, false>},
        {"selectattr", select<true, true>},
        {"slice", slice},
        {"sum", sum},
        {"xmlattr", xml_attributes},
    };
    return table;
}

}  // namespace attune::jinja
