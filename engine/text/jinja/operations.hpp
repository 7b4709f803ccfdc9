#pragma once

#include "engine/text/jinja/ast.hpp"

#include <initializer_list>
#include <optional>
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
Value attribute_of(Context& context, const Value& owner, std::string_view name);
Value item_of(Context& context, const Value& owner, const Value& key);
Value slice_of(Context& context, const Value& owner, const Value& start, const Value& stop, const Value& step);
Value call(Context& context, const Value& callee, Arguments arguments);

/// list(value); TypeError for what is not iterable. Shares lists and tuples.
Value::ListPtr items_of(Context& context, const Value& value);
/// len(value)
std::int64_t length_of(const Value& value);
/// int(value) where Python wants an index.
std::int64_t index_of(const Value& value);

/// A method of str, list, tuple, dict or a number; undefined when there is none of that name.
Value method_of(Context& context, const Value& owner, std::string_view name);

/// `format % argument` and format.format(...).
Text format_percent(Context& context, const Text& format, const Value& argument);
Text format_braces(Context& context, const Text& format, const Arguments& arguments);

/// json.dumps
struct JsonStyle {
    bool ensure_ascii = false;
    std::optional<std::string> indent;
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool sort_keys = false;
};
Text to_json(Context& context, const Value& value, const JsonStyle& style);

/// Names for the arguments of a built-in: position i may also be given as names[i].
class Bound {
public:
    Bound(std::string_view function, Arguments arguments, std::initializer_list<std::string_view> names,
          std::size_t required = 0);
    bool has(std::size_t i) const { return values_[i].has_value(); }
    const Value& operator[](std::size_t i) const { return *values_[i]; }
    Value or_value(std::size_t i, Value fallback) const { return has(i) ? *values_[i] : std::move(fallback); }
    std::int64_t or_int(std::size_t i, std::int64_t fallback) const {
        return has(i) ? index_of(*values_[i]) : fallback;
    }
    bool or_bool(std::size_t i, bool fallback) const { return has(i) ? is_true(*values_[i]) : fallback; }
    /// A text argument, or TypeError.
    const Text& text(std::size_t i) const;

private:
    std::string function_;
    std::vector<std::optional<Value>> values_;
};

/// A function or bound method.
class Function final : public Object {
public:
    using Body = Value (*)(Context& context, const Value& self, Arguments arguments);
    Function(std::string name, Body body, Value self = {}, std::string type = "builtin_function_or_method")
        : name_(std::move(name)), body_(body), self_(std::move(self)), type_(std::move(type)) {}
    std::string type_name() const override { return type_; }
    bool is_callable() const override { return true; }
    Value call(Context& context, Arguments arguments) override { return body_(context, self_, std::move(arguments)); }
    std::string repr() const override { return "<built-in method " + name_ + ">"; }

private:
    std::string name_;
    Body body_;
    Value self_;
    std::string type_;
};

/// namespace(): the only thing that a template may change.
class Namespace final : public Object {
public:
    Dict attributes;
    std::string type_name() const override { return "Namespace"; }
    std::unique_ptr<Value> attribute(std::string_view name) override;
    std::string repr() const override;
    static void check_name(std::string_view name);
};

/// Names that every template has.
std::vector<std::pair<std::string, Value>> make_globals();

}  // namespace attune::jinja
