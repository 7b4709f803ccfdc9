#include "engine/text/jinja/members.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/method_tables.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>

namespace attune::jinja {
namespace {

Value list_index(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("index", arguments, {"", "", ""}, 1);
    const auto items = items_of(context, self);
    context.charge(static_cast<std::int64_t>(items.size()) / 4);
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (equals(items[i], bound[0])) return static_cast<std::int64_t>(i);
    }
    throw Failure("ValueError", repr_of(bound[0]) + " is not in " + self.type_name());
}

Value list_count(Context& context, const Value& self, const Arguments& arguments) {
    const Bound bound("count", arguments, {""}, 1);
    const auto items = items_of(context, self);
    context.charge(static_cast<std::int64_t>(items.size()) / 4);
    return static_cast<std::int64_t>(
        std::count_if(items.begin(), items.end(), [&](const Value& item) { return equals(item, bound[0]); }));
}

Value copied(Context&, const Value& self, const Arguments&) { return self; }

Value view(Context& context, const Values& items, std::string_view type) {
    context.charge(static_cast<std::int64_t>(items.size()));
    return context.arena.make<Sequence>(Sequence{items.view(), type, false});
}

Value dict_keys(Context& context, const Value& self, const Arguments&) {
    Values items(context.arena);
    items.reserve(self.dict().entries().size());
    for (const auto& entry : self.dict().entries()) items.push_back(entry.key);
    return view(context, items, "dict_keys");
}

Value dict_values(Context& context, const Value& self, const Arguments&) {
    Values items(context.arena);
    items.reserve(self.dict().entries().size());
    for (const auto& entry : self.dict().entries()) items.push_back(entry.value);
    return view(context, items, "dict_values");
}

Value dict_items(Context& context, const Value& self, const Arguments&) {
    Values items(context.arena);
    items.reserve(self.dict().entries().size());
    for (const auto& [key, value] : self.dict().entries()) {
        Values pair(context.arena);
        pair.reserve(2);
        pair.push_back(key);
        pair.push_back(value);
        items.push_back(make_tuple(pair));
    }
    return view(context, items, "dict_items");
}

Value dict_get(Context&, const Value& self, const Arguments& arguments) {
    const Bound bound("get", arguments, {"", ""}, 1);
    require_hashable(bound[0]);
    const Value* found = self.dict().find_key(bound[0]);
    return found == nullptr ? bound.or_value(1, Value()) : *found;
}

Value is_integer(Context&, const Value& self, const Arguments&) {
    return self.is_integral() || self.number() == static_cast<double>(static_cast<std::int64_t>(self.number()));
}

using Members = std::unordered_map<std::string_view, Member>;

Members all_members() {
    Members members;
    for (const auto& [name, method] : text_methods()) members[name].of_text = method;
    for (const auto& [name, method] : MethodTable{{"index", list_index}, {"count", list_count}}) {
        members[name].of_list = method;
        members[name].of_tuple = method;
    }
    members["copy"].of_list = copied;
    for (const auto& [name, method] : MethodTable{{"keys", dict_keys},
                                                  {"values", dict_values},
                                                  {"items", dict_items},
                                                  {"get", dict_get},
                                                  {"copy", copied}}) {
        members[name].of_dict = method;
    }
    members["is_integer"].of_float = is_integer;
    for (const char* name : {"__class__", "__init__", "__doc__", "__dir__", "__eq__", "__hash__", "__str__", "__repr__",
                             "__reduce__", "__format__", "__getattribute__", "__sizeof__"}) {
        members[name].is_internal = true;
    }
    for (const char* name : {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}) {
        members[name].changes_list = true;
    }
    for (const char* name : {"clear", "pop", "popitem", "setdefault", "update"}) members[name].changes_dict = true;
    members["index"].loop = LoopField::index;
    members["index0"].loop = LoopField::index0;
    members["revindex"].loop = LoopField::revindex;
    members["revindex0"].loop = LoopField::revindex0;
    members["first"].loop = LoopField::first;
    members["last"].loop = LoopField::last;
    members["length"].loop = LoopField::length;
    members["depth"].loop = LoopField::depth;
    members["depth0"].loop = LoopField::depth0;
    members["previtem"].loop = LoopField::previtem;
    members["nextitem"].loop = LoopField::nextitem;
    members["cycle"].loop = LoopField::cycle;
    members["changed"].loop = LoopField::changed;
    return members;
}

}  // namespace

const Member& find_member(std::string_view name) {
    static const Members members = all_members();
    static const Member nothing_special;
    const auto found = members.find(name);
    return found == members.end() ? nothing_special : found->second;
}

}  // namespace attune::jinja
