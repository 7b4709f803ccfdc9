#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

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
        TextBuilder builder(context.arena);
        builder.reserve(static_cast<std::size_t>(total));
        for (Integer i = 0; i < times; ++i) builder.append(value.text());
        return builder.take();
    }
    Values items(context.arena);
    items.reserve(static_cast<std::size_t>(total));
    for (Integer i = 0; i < times; ++i) items.append(value.list().items);
    return value.is_tuple() ? make_tuple(items) : make_list(items, value.list().from_request);
}

Value add(Context& context, const Value& left, const Value& right) {
    if (left.is_text()) {
        if (!right.is_text()) {
            type_error("can only concatenate str (not \"" + right.type_name() + "\") to str");
        }
        context.charge_bytes(left.bytes().size() + right.bytes().size());
        TextBuilder builder(context.arena);
        builder.reserve(left.bytes().size() + right.bytes().size());
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
        Values items(context.arena);
        items.reserve(left.list().items.size() + right.list().items.size());
        items.append(left.list().items);
        items.append(right.list().items);
        const bool from_request = left.list().from_request || right.list().from_request;
        return left.is_tuple() ? make_tuple(items) : make_list(items, from_request);
    }
    unsupported(BinaryOperator::add, left, right);
}

bool is_repeatable(const Value& value) { return value.is_text() || value.is_list_or_tuple(); }

}  // namespace

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
        return find_bytes(haystack.bytes(), needle.bytes()) != std::string_view::npos;
    }
    if (haystack.is_dict()) {
        require_hashable(needle);
        return haystack.dict().find_key(needle) != nullptr;
    }
    if (haystack.is_none() || haystack.is_number()) {
        type_error("argument of type '" + haystack.type_name() + "' is not iterable");
    }
    const auto items = items_of(context, haystack);
    context.charge(static_cast<std::int64_t>(items.size()) / 4);
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& item) { return item.is_same(needle) || equals(item, needle); });
}

}  // namespace attune::jinja
