#include "engine/text/jinja/operations.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace attune::jinja {
namespace {

[[noreturn]] void too_large() { throw Failure("OverflowError", "an integer is too large"); }

constexpr std::array<std::string_view, 7> kSymbols = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void unsupported(BinaryOperator op, const Value& left, const Value& right) {
    type_error("unsupported operand type(s) for " + std::string(kSymbols[static_cast<std::size_t>(op)]) + ": '" +
               left.type_name() + "' and '" + right.type_name() + "'");
}

[[noreturn]] void division_by_zero() { throw Failure("ZeroDivisionError", "division by zero"); }

Integer floor_divide(Integer left, Integer right) {
    if (right == 0) division_by_zero();
    const Integer quotient = left / right;
    return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

double float_modulo(double left, double right) {
    if (right == 0) division_by_zero();
    const double rest = std::fmod(left, right);
    return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

Value integer_power(Integer base, Integer exponent) {
    if (exponent < 0) {
        if (base == 0) throw Failure("ZeroDivisionError", "0.0 cannot be raised to a negative power");
        return std::pow(static_cast<double>(base), static_cast<double>(exponent));
    }
    Integer result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
    }
    return result;
}

Value integer_operation(BinaryOperator op, Integer left, Integer right) {
    Integer result = 0;
    switch (op) {
        case BinaryOperator::add:
            if (__builtin_add_overflow(left, right, &result)) too_large();
            return result;
        case BinaryOperator::subtract:
            if (__builtin_sub_overflow(left, right, &result)) too_large();
            return result;
        case BinaryOperator::multiply:
            if (__builtin_mul_overflow(left, right, &result)) too_large();
            return result;
        case BinaryOperator::divide:
            if (right == 0) division_by_zero();
            return static_cast<double>(left) / static_cast<double>(right);
        case BinaryOperator::floor_divide:
            return floor_divide(left, right);
        case BinaryOperator::modulo:
            return left - floor_divide(left, right) * right;
        case BinaryOperator::power:
            return integer_power(left, right);
    }
    return {};
}

Value float_operation(BinaryOperator op, double left, double right) {
    switch (op) {
        case BinaryOperator::add:
            return left + right;
        case BinaryOperator::subtract:
            return left - right;
        case BinaryOperator::multiply:
            return left * right;
        case BinaryOperator::divide:
            if (right == 0) division_by_zero();
            return left / right;
        case BinaryOperator::floor_divide:
            if (right == 0) division_by_zero();
            return std::floor(left / right);
        case BinaryOperator::modulo:
            return float_modulo(left, right);
        case BinaryOperator::power: {
            if (left == 0 && right < 0) throw Failure("ZeroDivisionError", "0.0 cannot be raised to a negative power");
            const double result = std::pow(left, right);
            if (std::isinf(result) && std::isfinite(left) && std::isfinite(right)) {
                throw Failure("OverflowError", "(34, 'Numerical result out of range')");
            }
            return result;
        }
    }
    return {};
}

Value repeat(Context& context, const Value& value, Integer times) {
    const std::size_t size = value.is_text() ? value.bytes().size() : value.list().items.size();
    if (times <= 0 || size == 0) times = times <= 0 ? 0 : 1;
    const Integer total = static_cast<Integer>(size) * times;
    if (total > static_cast<Integer>(context.limits().output_bytes)) {
        throw Failure("OverflowError", "a repeated value is too large");
    }
    context.charge(static_cast<std::int64_t>(value.is_text() ? total / 16 : total));
    if (value.is_text()) {
        TextBuilder builder;
        for (Integer i = 0; i < times; ++i) builder.append(value.text());
        return builder.take();
    }
    List list;
    list.tuple = value.is_tuple();
    list.from_request = value.list().from_request;
    for (Integer i = 0; i < times; ++i) {
        list.items.insert(list.items.end(), value.list().items.begin(), value.list().items.end());
    }
    return list;
}

Value add(Context& context, const Value& left, const Value& right) {
    if (left.is_text()) {
        if (!right.is_text()) {
            type_error("can only concatenate str (not \"" + right.type_name() + "\") to str");
        }
        context.charge_bytes(left.bytes().size() + right.bytes().size());
        TextBuilder builder;
        builder.append(left.text());
        builder.append(right.text());
        return builder.take();
    }
    if (left.is_list_or_tuple()) {
        if (!right.is_list_or_tuple() || left.is_tuple() != right.is_tuple()) {
            type_error("can only concatenate " + left.type_name() + " (not \"" + right.type_name() + "\") to " +
                       left.type_name());
        }
        context.charge(static_cast<std::int64_t>(left.list().items.size() + right.list().items.size()) / 4);
        List list = left.list();
        list.from_request = list.from_request || right.list().from_request;
        list.items.insert(list.items.end(), right.list().items.begin(), right.list().items.end());
        return list;
    }
    unsupported(BinaryOperator::add, left, right);
}

bool is_repeatable(const Value& value) { return value.is_text() || value.is_list_or_tuple(); }

Value undefined_attribute(const Value& owner, std::string_view name) {
    Undefined undefined;
    undefined.owner = owner.described();
    undefined.name = name;
    return undefined;
}

Value undefined_element(const Value& owner, const Value& key) {
    Undefined undefined;
    undefined.owner = owner.described();
    undefined.name = to_repr(key).bytes;
    undefined.is_element = true;
    return undefined;
}

Value unsafe(const Value& owner, std::string_view name) {
    Undefined undefined;
    undefined.error_type = "SecurityError";
    undefined.hint = "access to attribute '" + std::string(name) + "' of '" + owner.type_name() + "' object is unsafe.";
    return undefined;
}

/// Attributes that every Python object has and no template may touch.
bool is_internal(std::string_view name) {
    constexpr std::array<std::string_view, 12> kInternal = {
        "__class__", "__init__", "__doc__",    "__dir__",    "__eq__",           "__hash__",
        "__str__",   "__repr__", "__reduce__", "__format__", "__getattribute__", "__sizeof__",
    };
    return std::find(kInternal.begin(), kInternal.end(), name) != kInternal.end();
}

bool changes_owner(const Value& owner, std::string_view name) {
    constexpr std::array<std::string_view, 8> kList = {"append", "clear", "pop",    "reverse",
                                                       "insert", "sort",  "extend", "remove"};
    constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault", "update"};
    if (owner.is_dict()) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
    if (!owner.is_list_or_tuple() || owner.is_tuple()) return false;
    return std::find(kList.begin(), kList.end(), name) != kList.end();
}

/// Python's getattr: null when there is none.
std::unique_ptr<Value> python_attribute(Context& context, const Value& owner, std::string_view name) {
    if (name.starts_with("__") && is_internal(name)) return std::make_unique<Value>(unsafe(owner, name));
    if (owner.is_object()) return owner.object().attribute(name);
    if (changes_owner(owner, name)) return std::make_unique<Value>(unsafe(owner, name));
    Value method = method_of(context, owner, name);
    if (method.is_undefined()) return nullptr;
    return std::make_unique<Value>(std::move(method));
}

/// owner[key]: null when Python raises LookupError or TypeError.
std::unique_ptr<Value> python_item(const Value& owner, const Value& key) {
    if (owner.is_dict()) {
        if (key.is_dict() || (key.is_list_or_tuple() && !key.is_tuple())) return nullptr;
        const Value* found = owner.dict().find_key(key);
        return found == nullptr ? nullptr : std::make_unique<Value>(*found);
    }
    if (!key.is_integral()) return nullptr;
    Integer index = key.integer();
    const auto at = [&](Integer length) -> std::optional<std::size_t> {
        if (index < 0) index += length;
        if (index < 0 || index >= length) return std::nullopt;
        return static_cast<std::size_t>(index);
    };
    if (owner.is_list_or_tuple()) {
        const auto& items = owner.list().items;
        const auto place = at(static_cast<Integer>(items.size()));
        return place ? std::make_unique<Value>(items[*place]) : nullptr;
    }
    if (owner.is_text()) {
        const auto place = at(length_of(owner));
        if (!place) return nullptr;
        const std::string& bytes = owner.bytes();
        const std::size_t begin = offset_of(bytes, *place);
        return std::make_unique<Value>(slice_bytes(owner.text(), begin, begin + code_point_at(bytes, begin).bytes));
    }
    if (owner.is_range()) {
        const auto place = at(owner.range().length());
        if (!place) return nullptr;
        return std::make_unique<Value>(owner.range().start + static_cast<std::int64_t>(*place) * owner.range().step);
    }
    return nullptr;
}

}  // namespace

void raise_undefined(const Value& value) { throw Failure(value.undefined().error_type, value.undefined().message()); }

void type_error(const std::string& message) { throw Failure("TypeError", message); }

Value apply(Context& context, BinaryOperator op, const Value& left, const Value& right) {
    if (op == BinaryOperator::modulo && left.is_text()) return format_percent(context, left.text(), right);
    // str + undefined is str's own complaint in Python only when the right side is no Undefined.
    require_defined(left);
    require_defined(right);
    if (left.is_number() && right.is_number()) {
        if (left.is_float() || right.is_float()) return float_operation(op, left.number(), right.number());
        return integer_operation(op, left.integer(), right.integer());
    }
    if (op == BinaryOperator::add) return add(context, left, right);
    if (op == BinaryOperator::multiply) {
        if (is_repeatable(left) && right.is_integral()) return repeat(context, left, right.integer());
        if (left.is_integral() && is_repeatable(right)) return repeat(context, right, left.integer());
    }
    unsupported(op, left, right);
}

Value negate(const Value& value) {
    if (value.is_float()) return -value.floating();
    Integer result = 0;
    if (__builtin_sub_overflow(Integer{0}, value.integer(), &result)) too_large();
    return result;
}

bool compare(Context& context, Comparison comparison, const Value& left, const Value& right) {
    switch (comparison) {
        case Comparison::equal:
            return equals(left, right);
        case Comparison::not_equal:
            return !equals(left, right);
        case Comparison::less:
            return less(left, right, "<");
        case Comparison::greater:
            return less(right, left, ">");
        case Comparison::less_equal:
            return left.is_float() || right.is_float()
                       ? less(left, right, "<=") || (left.is_number() && equals(left, right))
                       : !less(right, left, "<=");
        case Comparison::greater_equal:
            return left.is_float() || right.is_float()
                       ? less(right, left, ">=") || (left.is_number() && equals(left, right))
                       : !less(left, right, ">=");
        case Comparison::in:
            return contains(context, right, left);
        case Comparison::not_in:
            return !contains(context, right, left);
    }
    return false;
}

bool contains(Context& context, const Value& haystack, const Value& needle) {
    if (haystack.is_text()) {
        if (!needle.is_text()) {
            if (needle.is_undefined()) {
                type_error("'in <string>' requires string as left operand, not Undefined");
            }
            type_error("'in <string>' requires string as left operand, not " + needle.type_name());
        }
        context.charge_bytes(haystack.bytes().size());
        return find_bytes(haystack.bytes(), needle.bytes()) != std::string::npos;
    }
    if (haystack.is_dict()) {
        require_hashable(needle);
        return haystack.dict().find_key(needle) != nullptr;
    }
    if (haystack.is_none() || haystack.is_number()) {
        type_error("argument of type '" + haystack.type_name() + "' is not iterable");
    }
    const auto items = items_of(context, haystack);
    context.charge(static_cast<std::int64_t>(items->items.size()) / 4);
    return std::any_of(items->items.begin(), items->items.end(),
                       [&](const Value& item) { return item.is_same(needle) || equals(item, needle); });
}

Value attribute_of(Context& context, const Value& owner, std::string_view name) {
    require_defined(owner);
    // The common case first: no method of dict has the names that messages use.
    if (auto attribute = python_attribute(context, owner, name)) return std::move(*attribute);
    if (owner.is_dict()) {
        if (const Value* item = owner.dict().find(name)) return *item;
    }
    return undefined_attribute(owner, name);
}

Value item_of(Context& context, const Value& owner, const Value& key) {
    require_defined(owner);
    if (auto item = python_item(owner, key)) return std::move(*item);
    if (!key.is_text()) return undefined_element(owner, key);
    if (auto attribute = python_attribute(context, owner, key.bytes())) return std::move(*attribute);
    return undefined_attribute(owner, key.bytes());
}

Value slice_of(Context& context, const Value& owner, const Value& start, const Value& stop, const Value& step) {
    require_defined(owner);
    const bool sliceable = owner.is_text() || owner.is_list_or_tuple() || owner.is_range();
    if (!sliceable) {
        Undefined undefined;
        undefined.owner = owner.described();
        undefined.name =
            "slice(" + to_repr(start).bytes + ", " + to_repr(stop).bytes + ", " + to_repr(step).bytes + ")";
        undefined.is_element = true;
        return undefined;
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
        const std::string& bytes = owner.bytes();
        const std::size_t begin = offset_of(bytes, static_cast<std::size_t>(from));
        const std::size_t end =
            from < to ? begin + offset_of(std::string_view(bytes).substr(begin), static_cast<std::size_t>(to - from))
                      : begin;
        return slice_bytes(owner.text(), begin, end);
    }
    const auto items = items_of(context, owner);
    List list;
    list.tuple = owner.is_tuple();
    list.from_request = owner.is_list_or_tuple() && owner.list().from_request;
    for (std::int64_t i = from; stride > 0 ? i < to : i > to; i += stride) {
        list.items.push_back(items->items[static_cast<std::size_t>(i)]);
        if (stride > length || stride < -length) break;
    }
    if (!owner.is_text()) return list;
    TextBuilder builder;
    for (const Value& item : list.items) builder.append(item.text());
    return builder.take();
}

Value call(Context& context, const Value& callee, Arguments arguments) {
    require_defined(callee);
    if (!callee.is_object() || !callee.object().is_callable()) {
        type_error("'" + callee.type_name() + "' object is not callable");
    }
    const Value::ObjectPtr held = callee.object_pointer();
    return held->call(context, std::move(arguments));
}

Value::ListPtr items_of(Context& context, const Value& value) {
    if (value.is_list_or_tuple()) return value.list_pointer();
    List list;
    if (value.is_undefined()) {
        // iterates as nothing
    } else if (value.is_text()) {
        const Text& text = value.text();
        context.charge(static_cast<std::int64_t>(text.bytes.size()) / 2);
        for (std::size_t at = 0; at < text.bytes.size();) {
            const std::size_t next = at + code_point_at(text.bytes, at).bytes;
            list.items.emplace_back(slice_bytes(text, at, next));
            at = next;
        }
    } else if (value.is_dict()) {
        context.charge(static_cast<std::int64_t>(value.dict().entries.size()) / 2);
        for (const auto& entry : value.dict().entries) list.items.push_back(entry.first);
    } else if (value.is_range()) {
        const Range& range = value.range();
        const std::int64_t length = range.length();
        context.charge(length / 2);
        for (std::int64_t i = 0; i < length; ++i) list.items.emplace_back(range.start + i * range.step);
    } else if (value.is_sequence()) {
        Sequence& sequence = value.sequence();
        context.charge(static_cast<std::int64_t>(sequence.items.size()) / 4);
        list.items.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.next), sequence.items.end());
        if (sequence.used_up_by_reading) sequence.next = sequence.items.size();
    } else {
        type_error("'" + value.type_name() + "' object is not iterable");
    }
    return std::make_shared<const List>(std::move(list));
}

std::int64_t length_of(const Value& value) {
    if (value.is_text()) return static_cast<std::int64_t>(length_of(value.text()));
    if (value.is_list_or_tuple()) return static_cast<std::int64_t>(value.list().items.size());
    if (value.is_dict()) return static_cast<std::int64_t>(value.dict().entries.size());
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

Bound::Bound(std::string_view function, Arguments arguments, std::initializer_list<std::string_view> names,
             std::size_t required)
    : function_(function), values_(names.size()) {
    if (arguments.positional.size() > names.size()) {
        type_error(function_ + "() takes at most " + std::to_string(names.size()) + " arguments (" +
                   std::to_string(arguments.positional.size()) + " given)");
    }
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = std::move(arguments.positional[i]);
    for (auto& [name, value] : arguments.keyword) {
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end() || name.empty()) {
            type_error(function_ + "() got an unexpected keyword argument '" + name + "'");
        }
        auto& place = values_[static_cast<std::size_t>(found - names.begin())];
        if (place) type_error(function_ + "() got multiple values for argument '" + name + "'");
        place = std::move(value);
    }
    for (std::size_t i = 0; i < required; ++i) {
        if (!values_[i]) type_error(function_ + "() is missing a required argument");
    }
}

const Text& Bound::text(std::size_t i) const {
    const Value& value = *values_[i];
    require_defined(value);
    if (!value.is_text()) type_error(function_ + "() argument must be str, not " + value.type_name());
    return value.text();
}

std::unique_ptr<Value> Namespace::attribute(std::string_view name) {
    const Value* found = attributes.find(name);
    return found == nullptr ? nullptr : std::make_unique<Value>(*found);
}

std::string Namespace::repr() const {
    thread_local int depth = 0;
    struct Level {
        Level() { ++depth; }
        ~Level() { --depth; }
    } level;
    if (depth > 8) return "<Namespace ...>";  // it may hold itself
    return "<Namespace " + to_repr(Value(attributes)).bytes + ">";
}

void Namespace::check_name(std::string_view name) {
    if (!name.starts_with('_')) return;
    throw Failure("SecurityError",
                  "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
                      std::string(name) + "'. Please rename the attribute.");
}

}  // namespace attune::jinja
