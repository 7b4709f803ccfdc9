#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/filter_tables.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>
#include <optional>

namespace attune::jinja {
namespace {

Value generator(std::vector<Value> items) {
    Sequence sequence;
    sequence.items = std::move(items);
    return sequence;
}

Value list_of(std::vector<Value> items) {
    List list;
    list.items = std::move(items);
    return list;
}

Value undefined_because(const char* hint) {
    Undefined undefined;
    undefined.hint = hint;
    return undefined;
}

/// The items, paid for.
std::vector<Value> taken(Context& context, const Value& value) {
    const auto items = items_of(context, value);
    context.charge(static_cast<std::int64_t>(items->items.size()) / 2);
    return items->items;
}

/// item.a.0.b for attribute "a.0.b"; an integer is one index.
Value attribute_path(Context& context, const Value& item, const Value& attribute,
                     const std::optional<Value>& fallback) {
    if (!attribute.is_text()) return attribute.is_none() ? item : item_of(context, item, attribute);
    Value current = item;
    for (const Text& part : split_on(attribute.text(), ".", -1, false)) {
        context.charge();
        const bool number =
            !part.bytes.empty() && part.bytes.size() < 10 &&
            std::all_of(part.bytes.begin(), part.bytes.end(), [](char c) { return c >= '0' && c <= '9'; });
        current = item_of(context, current, number ? Value(std::stoi(part.bytes)) : Value(part));
        if (fallback && current.is_undefined()) current = *fallback;
    }
    return current;
}

Value ignoring_case(const Value& value) { return value.is_text() ? Value(lower(value.text())) : value; }

/// What sort, min, max and groupby compare.
class Key {
public:
    Key(Context& context, const Bound& bound, std::size_t attribute, std::size_t case_sensitive)
        : context_(context),
          attribute_(bound.or_value(attribute, Value())),
          case_sensitive_(bound.or_bool(case_sensitive, false)) {}
    Value of(const Value& item) const {
        const Value value = attribute_path(context_, item, attribute_, std::nullopt);
        return case_sensitive_ ? value : ignoring_case(value);
    }

private:
    Context& context_;
    Value attribute_;
    bool case_sensitive_;
};

struct Keyed {
    Value key;
    Value item;
};

/// Python's sorted(): stable, and `reverse` keeps equal ones in order. Insertion by merges, since a comparison throws.
void sort_by_key(Context& context, std::vector<Keyed>& items, bool reverse) {
    std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
        context.charge();
        return reverse ? less(b.key, a.key) : less(a.key, b.key);
    });
}

std::vector<Value> items_in_order(std::vector<Keyed> keyed) {
    std::vector<Value> items;
    for (Keyed& one : keyed) items.push_back(std::move(one.item));
    return items;
}

/// sort's attribute may list several: "a,b".
Value sort_key(Context& context, const Value& item, const Value& attribute, bool case_sensitive) {
    List parts;
    const auto add = [&](const Value& part) {
        const Value value = attribute_path(context, item, part, std::nullopt);
        parts.items.push_back(case_sensitive ? value : ignoring_case(value));
    };
    if (!attribute.is_text()) {
        add(attribute);
    } else {
        for (const Text& part : split_on(attribute.text(), ",", -1, false)) add(Value(part));
    }
    return parts;
}

Value sort(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
    std::vector<Keyed> keyed;
    for (const Value& item : taken(context, value)) {
        keyed.push_back({sort_key(context, item, bound.or_value(2, Value()), bound.or_bool(1, false)), item});
    }
    sort_by_key(context, keyed, bound.or_bool(0, false));
    return list_of(items_in_order(std::move(keyed)));
}

Value dict_sort(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
    const std::string by = bound.has(1) ? bound.text(1).bytes : "key";
    if (by != "key" && by != "value") {
        throw Failure("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    }
    std::vector<Keyed> keyed;
    for (const Value& pair : taken(context, call(context, attribute_of(context, value, "items"), {}))) {
        const Value& part = pair.list().items[by == "key" ? 0 : 1];
        keyed.push_back({bound.or_bool(0, false) ? part : ignoring_case(part), pair});
    }
    sort_by_key(context, keyed, bound.or_bool(2, false));
    return list_of(items_in_order(std::move(keyed)));
}

Value unique(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("unique", std::move(arguments), {"case_sensitive", "attribute"});
    const Key key(context, bound, 1, 0);
    Dict seen;
    std::vector<Value> kept;
    for (const Value& item : taken(context, value)) {
        const Value own = key.of(item);
        require_hashable(own);
        if (seen.find_key(own) != nullptr) continue;
        context.charge(own.is_text() ? 1 : static_cast<std::int64_t>(seen.entries.size()) / 4);
        seen.set(own, Value());
        kept.push_back(item);
    }
    return generator(std::move(kept));
}

template <bool largest>
Value extreme(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("min", std::move(arguments), {"case_sensitive", "attribute"});
    const Key key(context, bound, 1, 0);
    std::optional<Keyed> best;
    for (const Value& item : taken(context, value)) {
        Value own = key.of(item);
        const bool better = !best || (largest ? less(best->key, own) : less(own, best->key));
        if (better) best = Keyed{std::move(own), item};
    }
    return best ? best->item : undefined_because("No aggregated item, sequence was empty.");
}

Value group_by(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("groupby", std::move(arguments), {"attribute", "default", "case_sensitive"}, 1);
    const std::optional<Value> fallback =
        bound.has(1) && !bound[1].is_none() ? std::optional<Value>(bound[1]) : std::nullopt;
    const auto plain = [&](const Value& item) { return attribute_path(context, item, bound[0], fallback); };
    std::vector<Keyed> keyed;
    for (const Value& item : taken(context, value)) {
        const Value own = plain(item);
        keyed.push_back({bound.or_bool(2, false) ? own : ignoring_case(own), item});
    }
    sort_by_key(context, keyed, false);
    std::vector<Value> groups;
    for (std::size_t begin = 0; begin < keyed.size();) {
        std::size_t end = begin;
        std::vector<Value> members;
        while (end < keyed.size() && equals(keyed[end].key, keyed[begin].key)) members.push_back(keyed[end++].item);
        List pair;
        pair.tuple = true;
        pair.items = {plain(members[0]), list_of(std::move(members))};
        groups.emplace_back(std::move(pair));
        begin = end;
    }
    return list_of(std::move(groups));
}

Value join(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("join", std::move(arguments), {"d", "attribute"});
    const Text separator = bound.has(0) ? to_text(bound[0]) : Text();
    TextBuilder builder;
    bool first = true;
    for (const Value& item : taken(context, value)) {
        if (!first) builder.append(separator);
        first = false;
        const Value part = bound.has(1) ? attribute_path(context, item, bound[1], std::nullopt) : item;
        builder.append(to_text(part));
        if (builder.size() > context.limits().output_bytes) context.charge_bytes(builder.size());
    }
    context.charge_bytes(builder.size());
    return builder.take();
}

Value first(Context& context, const Value& value, Arguments) {
    if (value.is_text()) {
        const Value item = item_of(context, value, Value(0));
        return item.is_undefined() ? undefined_because("No first item, sequence was empty.") : item;
    }
    const auto items = items_of(context, value);
    return items->items.empty() ? undefined_because("No first item, sequence was empty.") : items->items.front();
}

Value last(Context& context, const Value& value, Arguments) {
    if (value.is_sequence() && value.sequence().used_up_by_reading) {
        type_error("'generator' object is not reversible");
    }
    const auto items = items_of(context, value);
    return items->items.empty() ? undefined_because("No last item, sequence was empty.") : items->items.back();
}

Value length(Context&, const Value& value, Arguments) { return length_of(value); }

Value list(Context& context, const Value& value, Arguments) {
    List made;
    made.from_request = value.is_list_or_tuple() && value.list().from_request;
    made.items = taken(context, value);
    return made;
}

Value reverse(Context& context, const Value& value, Arguments) {
    if (value.is_text()) return slice_of(context, value, Value(), Value(), Value(-1));
    std::vector<Value> items = taken(context, value);
    std::reverse(items.begin(), items.end());
    if (value.is_sequence() && value.sequence().used_up_by_reading) return list_of(std::move(items));
    return generator(std::move(items));
}

Value items(Context& context, const Value& value, Arguments) {
    if (value.is_undefined()) return generator({});
    if (!value.is_dict()) type_error("Can only get item pairs from a mapping.");
    return generator(taken(context, call(context, method_of(context, value, "items"), {})));
}

Value sum(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("sum", std::move(arguments), {"attribute", "start"});
    Value total = bound.or_value(1, Value(0));
    for (const Value& item : taken(context, value)) {
        const Value part = bound.has(0) ? attribute_path(context, item, bound[0], std::nullopt) : item;
        total = apply(context, BinaryOperator::add, total, part);
    }
    return total;
}

Value batch(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("batch", std::move(arguments), {"linecount", "fill_with"}, 1);
    const auto size = static_cast<std::size_t>(std::clamp<std::int64_t>(index_of(bound[0]), 1, 1'000'000));
    std::vector<Value> rows;
    std::vector<Value> row;
    for (const Value& item : taken(context, value)) {
        if (row.size() == size) rows.push_back(list_of(std::exchange(row, {})));
        row.push_back(item);
    }
    if (!row.empty()) {
        if (bound.has(1) && !bound[1].is_none()) {
            context.charge(static_cast<std::int64_t>(size));
            row.resize(size, bound[1]);
        }
        rows.push_back(list_of(std::move(row)));
    }
    return generator(std::move(rows));
}

Value slice(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("slice", std::move(arguments), {"slices", "fill_with"}, 1);
    const std::vector<Value> all = taken(context, value);
    const std::int64_t count = index_of(bound[0]);
    if (count == 0) throw Failure("ZeroDivisionError", "integer division or modulo by zero");
    context.charge(count);
    const std::int64_t each = count > 0 ? static_cast<std::int64_t>(all.size()) / count : 0;
    const std::int64_t longer = count > 0 ? static_cast<std::int64_t>(all.size()) % count : 0;
    std::vector<Value> columns;
    auto at = all.begin();
    for (std::int64_t i = 0; i < count; ++i) {
        const auto end = at + each + (i < longer ? 1 : 0);
        std::vector<Value> column(at, end);
        if (bound.has(1) && !bound[1].is_none() && i >= longer) column.push_back(bound[1]);
        columns.push_back(list_of(std::move(column)));
        at = end;
    }
    return generator(std::move(columns));
}

Value map(Context& context, const Value& value, Arguments arguments) {
    if (!is_true(value)) return generator({});
    std::vector<Value> results;
    auto& keyword = arguments.keyword;
    const auto named = [&](std::string_view name) {
        return std::find_if(keyword.begin(), keyword.end(), [&](const auto& k) { return k.first == name; });
    };
    if (arguments.positional.empty() && named("attribute") != keyword.end()) {
        const Bound bound("map", std::move(arguments), {"attribute", "default"});
        const std::optional<Value> fallback =
            bound.has(1) && !bound[1].is_none() ? std::optional<Value>(bound[1]) : std::nullopt;
        for (const Value& item : taken(context, value)) {
            results.push_back(attribute_path(context, item, bound[0], fallback));
        }
        return generator(std::move(results));
    }
    if (arguments.positional.empty() || !arguments.positional[0].is_text()) {
        throw Failure("FilterArgumentError", "map requires a filter argument");
    }
    const std::string name = arguments.positional[0].bytes();
    const Filter filter = find_filter(name);
    if (filter == nullptr) throw Failure("TemplateRuntimeError", "No filter named '" + name + "'.");
    arguments.positional.erase(arguments.positional.begin());
    const Context::Nesting nesting(context);
    for (const Value& item : taken(context, value)) {
        context.charge();
        results.push_back(filter(context, item, arguments));
    }
    return generator(std::move(results));
}

/// select, reject, selectattr, rejectattr: keeps the items whose test gives `keep`.
template <bool keep, bool by_attribute>
Value select(Context& context, const Value& value, Arguments arguments) {
    if (!is_true(value)) return generator({});
    auto& positional = arguments.positional;
    Value attribute;
    if (by_attribute) {
        if (positional.empty()) throw Failure("FilterArgumentError", "Missing parameter for attribute name");
        attribute = positional[0];
        positional.erase(positional.begin());
    }
    Test test = nullptr;
    if (!positional.empty()) {
        const std::string name = to_text(positional[0]).bytes;
        test = find_test(name);
        if (test == nullptr) throw Failure("TemplateRuntimeError", "No test named '" + name + "'.");
        positional.erase(positional.begin());
    }
    std::vector<Value> kept;
    for (const Value& item : taken(context, value)) {
        context.charge();
        const Value subject = by_attribute ? attribute_path(context, item, attribute, std::nullopt) : item;
        const bool passed = test == nullptr ? is_true(subject) : test(context, subject, arguments);
        if (passed == keep) kept.push_back(item);
    }
    return generator(std::move(kept));
}

Value xml_attributes(Context& context, const Value& value, Arguments arguments) {
    const Bound bound("xmlattr", std::move(arguments), {"autospace"});
    TextBuilder builder;
    for (const Value& pair : taken(context, call(context, attribute_of(context, value, "items"), {}))) {
        const Value& name = pair.list().items[0];
        const Value& content = pair.list().items[1];
        if (content.is_none() || content.is_undefined()) continue;
        const Text shown = to_text(name);
        if (shown.bytes.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
            throw Failure("ValueError", "Invalid character in attribute name: " + to_repr(name).bytes);
        }
        if (builder.size() > 0 || bound.or_bool(0, true)) builder.append(" ");
        builder.append(escape_html(shown));
        builder.append("=\"");
        builder.append(escape_html(to_text(content)));
        builder.append("\"");
    }
    return builder.take();
}

}  // namespace

const FilterTable& list_filters() {
    static const FilterTable table = {
        {"batch", batch},
        {"count", length},
        {"dictsort", dict_sort},
        {"first", first},
        {"groupby", group_by},
        {"items", items},
        {"join", join},
        {"last", last},
        {"length", length},
        {"list", list},
        {"map", map},
        {"max", extreme<true>},
        {"min", extreme<false>},
        {"reject", select<false, false>},
        {"rejectattr", select<false, true>},
        {"reverse", reverse},
        {"select", select<true, false>},
        {"selectattr", select<true, true>},
        {"slice", slice},
        {"sort", sort},
        {"sum", sum},
        {"unique", unique},
        {"xmlattr", xml_attributes},
    };
    return table;
}

}  // namespace attune::jinja
