#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>

namespace attune::jinja {
namespace {

Value undefined_member(Arena& arena, const Value& owner, std::string_view name, bool is_element = false) {
    Undefined undefined;
    undefined.owner_type = owner.type();
    undefined.name = name;
    undefined.is_element = is_element;
    return arena.make<const Undefined>(undefined);
}

Value unsafe(Arena& arena, const Value& owner, std::string_view name) {
    Undefined undefined;
    undefined.error_type = "SecurityError";
    undefined.hint =
        arena.copy("access to attribute '" + std::string(name) + "' of '" + owner.type_name() + "' object is unsafe.");
    return arena.make<const Undefined>(undefined);
}

/// Python's getattr.
std::optional<Value> python_attribute(Context& context, const Value& owner, std::string_view name,
                                      const Member& known) {
    if (known.is_internal) return unsafe(context.arena, owner, name);
    if (owner.is_object()) return owner.object().attribute(context.arena, name, known);
    const bool changes = (known.changes_dict && owner.is_dict()) ||
                         (known.changes_list && owner.is_list_or_tuple() && !owner.is_tuple());
    if (changes) return unsafe(context.arena, owner, name);
    const Method method = known.of(owner);
    if (method == nullptr) return std::nullopt;
    return Value(context.arena.make<Function>(name, method, owner));
}

/// The index of one of `length` items, counted from the end when negative; empty when there is none.
std::optional<std::size_t> place_of(const Value& key, std::int64_t length) {
    Integer index = key.integer();
    if (index < 0) index += length;
    if (index < 0 || index >= length) return std::nullopt;
    return static_cast<std::size_t>(index);
}

/// owner[key]: empty when Python raises LookupError or TypeError.
std::optional<Value> python_item(Context& context, const Value& owner, const Value& key) {
    if (owner.is_dict()) {
        if (key.is_dict() || (key.is_list_or_tuple() && !key.is_tuple())) return std::nullopt;
        const Value* found = owner.dict().find_key(key);
        return found == nullptr ? std::nullopt : std::optional<Value>(*found);
    }
    if (!key.is_integral()) return std::nullopt;
    if (owner.is_list_or_tuple()) {
        const auto items = owner.list().items;
        const auto place = place_of(key, static_cast<std::int64_t>(items.size()));
        return place ? std::optional<Value>(items[*place]) : std::nullopt;
    }
    if (owner.is_text()) {
        const auto place = place_of(key, length_of(owner));
        if (!place) return std::nullopt;
        const std::string_view bytes = owner.bytes();
        const std::size_t begin = offset_of(bytes, *place);
        return slice_bytes(context.arena, owner.text(), begin, begin + code_point_at(bytes, begin).bytes);
    }
    if (owner.is_range()) {
        const auto place = place_of(key, owner.range().length());
        if (!place) return std::nullopt;
        return owner.range().start + static_cast<std::int64_t>(*place) * owner.range().step;
    }
    return std::nullopt;
}

std::span<const Value> characters_of(Context& context, const Text& text) {
    context.charge(static_cast<std::int64_t>(text.size()) / 2);
    Values items(context.arena);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t next = at + code_point_at(text.bytes(), at).bytes;
        items.push_back(slice_bytes(context.arena, text, at, next));
        at = next;
    }
    return items.view();
}

}  // namespace

void raise_undefined(const Value& value) {
    throw Failure(std::string(value.undefined().error_type), value.undefined().message());
}

void type_error(const std::string& message) { throw Failure("TypeError", message); }

Value attribute_of(Context& context, const Value& owner, std::string_view name, const Member& known) {
    require_defined(owner);
    if (const auto attribute = python_attribute(context, owner, name, known)) return *attribute;
    if (owner.is_dict()) {
        if (const Value* item = owner.dict().find(name)) return *item;
    }
    return undefined_member(context.arena, owner, name);
}

Value item_of(Context& context, const Value& owner, const Value& key) {
    require_defined(owner);
    if (const auto item = python_item(context, owner, key)) return *item;
    if (!key.is_text()) return undefined_member(context.arena, owner, context.arena.copy(repr_of(key)), true);
    const Member& known = find_member(key.bytes());
    if (const auto attribute = python_attribute(context, owner, key.bytes(), known)) return *attribute;
    return undefined_member(context.arena, owner, key.bytes());
}

Value slice_of(Context& context, const Value& owner, const Value& start, const Value& stop, const Value& step) {
    require_defined(owner);
    const bool sliceable = owner.is_text() || owner.is_list_or_tuple() || owner.is_range();
    if (!sliceable) {
        const std::string shown = "slice(" + repr_of(start) + ", " + repr_of(stop) + ", " + repr_of(step) + ")";
        return undefined_member(context.arena, owner, context.arena.copy(shown), true);
    }
    const std::int64_t length = length_of(owner);
    const std::int64_t stride = step.is_none() ? 1 : index_of(step);
    if (stride == 0) throw Failure("ValueError", "slice step cannot be zero");
    const auto bound = [&](const Value& given, std::int64_t fallback) {
        if (given.is_none()) return fallback;
        std::int64_t at = index_of(given);
        if (at < 0) at = std::max<std::int64_t>(at + length, stride < 0 ? -1 : 0);
        return std::min(at, stride < 0 ? length - 1 : length);
    };
    const std::int64_t from = bound(start, stride > 0 ? 0 : length - 1);
    const std::int64_t to = bound(stop, stride > 0 ? length : -1);
    if (owner.is_text() && stride == 1) {
        const std::string_view bytes = owner.bytes();
        const std::size_t begin = offset_of(bytes, static_cast<std::size_t>(from));
        const std::size_t end =
            from < to ? begin + offset_of(bytes.substr(begin), static_cast<std::size_t>(to - from)) : begin;
        return slice_bytes(context.arena, owner.text(), begin, end);
    }
    const auto items = items_of(context, owner);
    Values kept(context.arena);
    for (std::int64_t i = from; stride > 0 ? i < to : i > to; i += stride) {
        kept.push_back(items[static_cast<std::size_t>(i)]);
        if (stride > length || stride < -length) break;
    }
    if (!owner.is_text()) {
        return owner.is_tuple() ? make_tuple(kept)
                                : make_list(kept, owner.is_list_or_tuple() && owner.list().from_request);
    }
    TextBuilder builder(context.arena);
    for (const Value& item : kept) builder.append(item.text());
    return builder.take();
}

Value call(Context& context, const Value& callee, const Arguments& arguments) {
    require_defined(callee);
    if (!callee.is_object() || !callee.object().is_callable()) {
        type_error("'" + callee.type_name() + "' object is not callable");
    }
    return callee.object().call(context, arguments);
}

Value call_method(Context& context, const Value& owner, std::string_view name) {
    return call(context, attribute_of(context, owner, name), {});
}

std::span<const Value> items_of(Context& context, const Value& value) {
    if (value.is_list_or_tuple()) return value.list().items;
    if (value.is_undefined()) return {};  // iterates as nothing
    if (value.is_text()) return characters_of(context, value.text());
    if (value.is_sequence()) {
        Sequence& sequence = value.sequence();
        const auto items = sequence.items;
        if (sequence.used_up_by_reading) sequence.items = {};
        return items;
    }
    Values items(context.arena);
    if (value.is_dict()) {
        context.charge(static_cast<std::int64_t>(value.dict().entries().size()) / 2);
        items.reserve(value.dict().entries().size());
        for (const auto& entry : value.dict().entries()) items.push_back(entry.key);
    } else if (value.is_range()) {
        const Range& range = value.range();
        const std::int64_t length = range.length();
        context.charge(length / 2);
        items.reserve(static_cast<std::size_t>(length));
        for (std::int64_t i = 0; i < length; ++i) items.push_back(range.start + i * range.step);
    } else {
        type_error("'" + value.type_name() + "' object is not iterable");
    }
    return items.view();
}

std::int64_t length_of(const Value& value) {
    if (value.is_text()) return static_cast<std::int64_t>(length_of(value.text()));
    if (value.is_list_or_tuple()) return static_cast<std::int64_t>(value.list().items.size());
    if (value.is_dict()) return static_cast<std::int64_t>(value.dict().entries().size());
    if (value.is_range()) return value.range().length();
    if (value.is_undefined()) return 0;
    if (value.is_sequence() && !value.sequence().used_up_by_reading) {
        return static_cast<std::int64_t>(value.sequence().items.size());
    }
    type_error("object of type '" + value.type_name() + "' has no len()");
}

std::int64_t index_of(const Value& value) {
    require_defined(value);
    if (!value.is_integral()) type_error("'" + value.type_name() + "' object cannot be interpreted as an integer");
    constexpr Integer kLargest = std::int64_t{1} << 62;
    return static_cast<std::int64_t>(std::clamp(value.integer(), -kLargest, kLargest));
}

}  // namespace attune::jinja
