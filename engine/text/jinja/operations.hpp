#pragma once

#include "engine/text/jinja/ast.hpp"
#include "engine/text/jinja/members.hpp"

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune::jinja {

/// Uses an undefined value: throws what it has to say.
[[noreturn]] void raise_undefined(const Value& value);
inline void require_defined(const Value& value) {
    if (value.is_undefined()) raise_undefined(value);
}
[[noreturn]] void type_error(const std::string& message);

Value apply(Context& context, BinaryOperator op, const Value& left, const Value& right);
Value negate(const Value& value);
bool compare(Context& context, Comparison comparison, const Value& left, const Value& right);
/// `needle in haystack`
bool contains(Context& context, const Value& haystack, const Value& needle);

/// environment.getattr and environment.getitem of the sandbox: what is missing is undefined, not an error.
Value attribute_of(Context& context, const Value& owner, std::string_view name, const Member& known);
inline Value attribute_of(Context& context, const Value& owner, std::string_view name) {
    return attribute_of(context, owner, name, find_member(name));
}
Value item_of(Context& context, const Value& owner, const Value& key);
Value slice_of(Context& context, const Value& owner, const Value& start, const Value& stop, const Value& step);
Value call(Context& context, const Value& callee, const Arguments& arguments);

/// list(value); TypeError for what is not iterable. Shares the items of lists and tuples.
std::span<const Value> items_of(Context& context, const Value& value);
/// len(value)
std::int64_t length_of(const Value& value);
/// int(value) where Python wants an index.
std::int64_t index_of(const Value& value);

/// owner.name() for a method of str or dict.
Value call_method(Context& context, const Value& owner, std::string_view name);

/// `format % argument` and format.format(...).
Text format_percent(Context& context, const Text& format, const Value& argument);
Text format_braces(Context& context, const Text& format, const Arguments& arguments);

/// json.dumps
struct JsonStyle {
    bool ensure_ascii = false;
    std::optional<std::string_view> indent;
    std::string_view item_separator = ", ";
    std::string_view key_separator = ": ";
    bool sort_keys = false;
};
Text to_json(Context& context, const Value& value, const JsonStyle& style);

/// Names for the arguments of a built-in: position i may also be given as names[i].
class Bound {
public:
    static constexpr std::size_t kMost = 4;
    /// `arguments` must outlive it.
    Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
          std::size_t required = 0);
    bool has(std::size_t i) const { return values_[i] != nullptr; }
    const Value& operator[](std::size_t i) const { return *values_[i]; }
    Value or_value(std::size_t i, const Value& fallback) const { return has(i) ? *values_[i] : fallback; }
    std::int64_t or_int(std::size_t i, std::int64_t fallback) const {
        return has(i) ? index_of(*values_[i]) : fallback;
    }
    bool or_bool(std::size_t i, bool fallback) const { return has(i) ? is_true(*values_[i]) : fallback; }
    /// A text argument, or TypeError.
    const Text& text(std::size_t i) const;

private:
    std::string_view function_;
    std::array<const Value*, kMost> values_{};
};

/// A function or bound method.
class Function final : public Object {
public:
    Function(std::string_view name, Method body, const Value& self = {},
             std::string_view type = "builtin_function_or_method")
        : name_(name), body_(body), self_(self), type_(type) {}
    std::string_view type_name() const override { return type_; }
    bool is_callable() const override { return true; }
    Value call(Context& context, const Arguments& arguments) override { return body_(context, self_, arguments); }
    std::string repr() const override { return "<built-in method " + std::string(name_) + ">"; }

private:
    std::string_view name_;
    Method body_;
    Value self_;
    std::string_view type_;
};

/// namespace(): the only thing that a template may change.
class Namespace final : public Object {
public:
    explicit Namespace(const Dict& given) : attributes(given) {}
    Dict attributes;
    std::string_view type_name() const override { return "Namespace"; }
    std::optional<Value> attribute(Arena&, std::string_view name, const Member&) override {
        const Value* found = attributes.find(name);
        return found == nullptr ? std::nullopt : std::optional<Value>(*found);
    }
    std::string repr() const override;
    static void check_name(std::string_view name);
};

/// Names that every template has.
struct Global {
    std::string_view name;
    Method body;
};
std::span<const Global> globals();

}  // namespace attune::jinja
