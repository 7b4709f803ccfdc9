#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/filter_tables.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace attune::jinja {
namespace {

Value ignoring_case(Arena& arena, const Value& value) {
    return value.is_text() ? Value(lower(arena, value.text())) : value;
}

/// What sort, min, max and groupby compare.
class Key {
public:
    Key(Context& context, const Bound& bound, std::size_t attribute, std::size_t case_sensitive)
        : context_(context),
          attribute_(bound.or_value(attribute, Value())),
          case_sensitive_(bound.or_bool(case_sensitive, false)) {}
    Value of(const Value& item) const {
        const Value value = attribute_path(context_, item, attribute_, std::nullopt);
        return case_sensitive_ ? value : ignoring_case(context_.arena, value);
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

Value items_in_order(Context& context, const std::vector<Keyed>& keyed) {
    Values items(context.arena);
    for (const Keyed& one : keyed) items.push_back(one.item);
    return make_list(items);
}

/// sort's attribute may list several: "a,b".
Value sort_key(Context& context, const Value& item, const Value& attribute, bool case_sensitive) {
    Values parts(context.arena);
    const auto add = [&](const Value& part) {
        const Value value = attribute_path(context, item, part, std::nullopt);
        parts.push_back(case_sensitive ? value : ignoring_case(context.arena, value));
    };
    if (!attribute.is_text()) {
        add(attribute);
    } else {
        for (const Text& part : split_on(context.arena, attribute.text(), ",", -1, false)) add(Value(part));
    }
    return make_list(parts);
}

Value sort(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
    std::vector<Keyed> keyed;
    for (const Value& item : taken(context, value)) {
        keyed.push_back({sort_key(context, item, bound.or_value(2, Value()), bound.or_bool(1, false)), item});
    }
    sort_by_key(context, keyed, bound.or_bool(0, false));
    return items_in_order(context, keyed);
}

Value dict_sort(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
    const std::string_view by = bound.has(1) ? bound.text(1).bytes() : "key";
    if (by != "key" && by != "value") {
        throw Failure("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    }
    std::vector<Keyed> keyed;
    for (const Value& pair : taken(context, call_method(context, value, "items"))) {
        const Value& part = pair.list().items[by == "key" ? 0 : 1];
        keyed.push_back({bound.or_bool(0, false) ? part : ignoring_case(context.arena, part), pair});
    }
    sort_by_key(context, keyed, bound.or_bool(2, false));
    return items_in_order(context, keyed);
}

Value unique(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
    const Key key(context, bound, 1, 0);
    Dict seen(context.arena);
    Values kept(context.arena);
    for (const Value& item : taken(context, value)) {
        const Value own = key.of(item);
        require_hashable(own);
        if (seen.find_key(own) != nullptr) continue;
        context.charge(own.is_text() ? 1 : static_cast<std::int64_t>(seen.entries().size()) / 4);
        seen.set(own, Value());
        kept.push_back(item);
    }
    return make_generator(kept);
}

template <bool largest>
Value extreme(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("min", arguments, {"case_sensitive", "attribute"});
    const Key key(context, bound, 1, 0);
    std::optional<Keyed> best;
    for (const Value& item : taken(context, value)) {
        const Value own = key.of(item);
        const bool better = !best || (largest ? less(best->key, own) : less(own, best->key));
        if (better) best = Keyed{own, item};
    }
    return best ? best->item : undefined_because(context.arena, "No aggregated item, sequence was empty.");
}

Value group_by(Context& context, const Value& value, const Arguments& arguments) {
    const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
    const std::optional<Value> fallback =
        bound.has(1) && !bound[1].is_none() ? std::optional<Value>(bound[1]) : std::nullopt;
    const auto plain = [&](const Value& item) { return attribute_path(context, item, bound[0], fallback); };
    std::vector<Keyed> keyed;
    for (const Value& item : taken(context, value)) {
        const Value own = plain(item);
        keyed.push_back({bound.or_bool(2, false) ? own : ignoring_case(context.arena, own), item});
    }
    sort_by_key(context, keyed, false);
    Values groups(context.arena);
    for (std::size_t begin = 0; begin < keyed.size();) {
        std::size_t end = begin;
        Values members(context.arena);
        while (end < keyed.size() && equals(keyed[end].key, keyed[begin].key)) members.push_back(keyed[end++].item);
        Values pair(context.arena);
        pair.push_back(plain(members[0]));
        pair.push_back(make_list(members));
        groups.push_back(make_tuple(pair));
        begin = end;
    }
    return make_list(groups);
}

}  // namespace

const FilterTable& order_filters() {
    static const FilterTable table = {
        {"dictsort", dict_sort}, {"groupby", group_by}, {"max", extreme<true>},
        {"min", extreme<false>}, {"sort", sort},        {"unique", unique},
    };
    return table;
}

}  // namespace attune::jinja
