#include "engine/text/jinja/value.hpp"

#include "engine/text/jinja/error.hpp"

#include <algorithm>
#include <functional>

namespace attune::jinja {
namespace {

constexpr int kMaxDepth = 200;

[[noreturn]] void too_deep() { throw Failure("RecursionError", "a value is nested too deeply"); }

bool has_request_text(const Value& value, int depth) {
    if (depth > kMaxDepth) too_deep();
    if (value.is_text()) return value.text().has_literal();
    if (value.is_list_or_tuple()) {
        const List& list = value.list();
        return list.from_request || std::any_of(list.items.begin(), list.items.end(),
                                                [&](const Value& item) { return has_request_text(item, depth + 1); });
    }
    if (value.is_dict()) {
        const Dict& dict = value.dict();
        return dict.from_request || std::any_of(dict.entries().begin(), dict.entries().end(), [&](const auto& entry) {
                   return has_request_text(entry.key, depth + 1) || has_request_text(entry.value, depth + 1);
               });
    }
    if (value.is_sequence()) {
        const auto items = value.sequence().items;
        return std::any_of(items.begin(), items.end(),
                           [&](const Value& item) { return has_request_text(item, depth + 1); });
    }
    return false;
}

bool equals(const Value& left, const Value& right, int depth) {
    if (left.is_text() && right.is_text()) return same_bytes(left.bytes(), right.bytes());
    if (depth > kMaxDepth) too_deep();
    if (left.is_number() && right.is_number()) {
        if (left.is_float() || right.is_float()) return left.number() == right.number();
        return left.integer() == right.integer();
    }
    if (left.is_none() || right.is_none()) return left.is_none() && right.is_none();
    if (left.is_undefined() || right.is_undefined()) return left.is_undefined() && right.is_undefined();
    if (left.is_list_or_tuple() && right.is_list_or_tuple()) {
        const List& a = left.list();
        const List& b = right.list();
        return a.tuple == b.tuple && a.items.size() == b.items.size() &&
               std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                          [&](const Value& x, const Value& y) { return equals(x, y, depth + 1); });
    }
    if (left.is_dict() && right.is_dict()) {
        const Dict& a = left.dict();
        const Dict& b = right.dict();
        return a.entries().size() == b.entries().size() &&
               std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
                   const Value* other = b.find_key(entry.key);
                   return other != nullptr && equals(entry.value, *other, depth + 1);
               });
    }
    if (left.is_range() && right.is_range()) return left.range() == right.range();
    return left.is_same(right);
}

}  // namespace

bool Value::is_tuple() const { return is_list_or_tuple() && list().tuple; }

bool Value::is_same(const Value& other) const {
    if (kind_ != other.kind_) return false;
    switch (kind_) {
        case Kind::unset:
        case Kind::none:
            return true;
        case Kind::boolean:
        case Kind::integer:
            return integer() == other.integer();
        case Kind::floating:
            return floating() == other.floating();
        case Kind::text:
            return bytes().data() == other.bytes().data() && bytes().size() == other.bytes().size();
        default:
            return object_ == other.object_;  // whatever it points to
    }
}

std::string_view Value::type() const {
    switch (kind_) {
        case Kind::unset:
        case Kind::undefined:
            return "Undefined";
        case Kind::none:
            return "NoneType";
        case Kind::boolean:
            return "bool";
        case Kind::integer:
            return "int";
        case Kind::floating:
            return "float";
        case Kind::text:
            return "str";
        case Kind::list:
            return list().tuple ? "tuple" : "list";
        case Kind::dict:
            return "dict";
        case Kind::range:
            return "range";
        case Kind::sequence:
            return sequence().type;
        case Kind::object:
            return object().type_name();
    }
    return {};
}

std::string Value::described() const { return is_none() ? "None" : type_name() + " object"; }

Value make_list(const Values& items, bool from_request) {
    return items.arena().make<const List>(List{items.view(), false, from_request});
}

Value make_tuple(const Values& items) { return items.arena().make<const List>(List{items.view(), true, false}); }

Value undefined_because(Arena& arena, std::string_view hint) {
    Undefined undefined;
    undefined.hint = hint;
    return arena.make<const Undefined>(undefined);
}

Dict::Dict(Arena& arena, const Dict& from)
    : from_request(from.from_request), entries_(arena, from.entries()), index_(arena, from.index_.view()) {}

const Value* Dict::find_in_index(std::string_view key) const {
    const std::size_t mask = index_.size() - 1;
    for (std::size_t at = std::hash<std::string_view>()(key) & mask; index_[at] != 0; at = (at + 1) & mask) {
        const Entry& entry = entries_[index_[at] - 1];
        if (entry.key.bytes() == key) return &entry.value;
    }
    return nullptr;
}

const Value* Dict::find_key(const Value& key) const {
    if (key.is_text()) return find(key.bytes());
    for (const Entry& entry : entries_) {
        if (!entry.key.is_text() && equals(entry.key, key)) return &entry.value;
    }
    return nullptr;
}

void Dict::set(const Value& key, const Value& value) {
    if (const Value* old = find_key(key)) {
        *const_cast<Value*>(old) = value;  // ours: find_key() is const only for readers
        return;
    }
    add(key, value);
}

void Dict::index_last() {
    if (2 * entries_.size() < index_.size()) {
        put_in_index(entries_.size() - 1);
        return;
    }
    const std::size_t places = std::max<std::size_t>(64, 2 * index_.size());
    index_.clear();
    index_.reserve(places);
    for (std::size_t i = 0; i < places; ++i) index_.push_back(0);
    for (std::size_t i = 0; i < entries_.size(); ++i) put_in_index(i);
}

void Dict::put_in_index(std::size_t place) {
    if (!entries_[place].key.is_text()) return;
    const std::size_t mask = index_.size() - 1;
    std::size_t at = std::hash<std::string_view>()(entries_[place].key.bytes()) & mask;
    while (index_[at] != 0) at = (at + 1) & mask;
    index_[at] = static_cast<std::uint32_t>(place + 1);
}

std::int64_t Range::length() const {
    if (step > 0) return start < stop ? (stop - start + step - 1) / step : 0;
    return start > stop ? (start - stop - step - 1) / -step : 0;
}

Value Object::call(Context&, const Arguments&) {
    throw Failure("TypeError", "'" + std::string(type_name()) + "' object is not callable");
}

bool is_true(const Value& value) {
    if (value.is_bool()) return value.boolean();
    if (value.is_text()) return !value.bytes().empty();
    if (value.is_none() || value.is_undefined()) return false;
    if (value.is_int()) return value.integer() != 0;
    if (value.is_float()) return value.floating() != 0;
    if (value.is_list_or_tuple()) return !value.list().items.empty();
    if (value.is_dict()) return !value.dict().entries().empty();
    if (value.is_range()) return value.range().length() > 0;
    if (value.is_sequence()) return value.sequence().used_up_by_reading || !value.sequence().items.empty();
    return true;
}

bool equals(const Value& left, const Value& right) { return equals(left, right, 0); }

bool less(const Value& left, const Value& right, const char* operation) {
    if (left.is_undefined()) throw Failure(std::string(left.undefined().error_type), left.undefined().message());
    if (right.is_undefined()) throw Failure(std::string(right.undefined().error_type), right.undefined().message());
    if (left.is_number() && right.is_number()) {
        if (left.is_float() || right.is_float()) return left.number() < right.number();
        return left.integer() < right.integer();
    }
    // UTF-8 keeps the order of code points.
    if (left.is_text() && right.is_text()) return left.bytes() < right.bytes();
    if (left.is_list_or_tuple() && right.is_list_or_tuple() && left.is_tuple() == right.is_tuple()) {
        const auto a = left.list().items;
        const auto b = right.list().items;
        for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
            if (!equals(a[i], b[i])) return less(a[i], b[i], operation);
        }
        return a.size() < b.size();
    }
    throw Failure("TypeError", std::string("'") + operation + "' not supported between instances of '" +
                                   left.type_name() + "' and '" + right.type_name() + "'");
}

bool has_request_text(const Value& value) { return has_request_text(value, 0); }

void require_hashable(const Value& value) {
    if (value.is_dict() || (value.is_list_or_tuple() && !value.is_tuple())) {
        throw Failure("TypeError", "unhashable type: '" + value.type_name() + "'");
    }
    if (value.is_tuple()) {
        for (const Value& item : value.list().items) require_hashable(item);
    }
}

}  // namespace attune::jinja
