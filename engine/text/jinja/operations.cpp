#include "engine/text/jinja/operations.hpp"

#include "engine/text/jinja/error.hpp"

#include <algorithm>

namespace attune::jinja {

Bound::Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             std::size_t required)
    : function_(function) {
    if (arguments.positional.size() > names.size()) {
        type_error(std::string(function_) + "() takes at most " + std::to_string(names.size()) + " arguments (" +
                   std::to_string(arguments.positional.size()) + " given)");
    }
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.keyword) {
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end() || name.empty()) {
            type_error(std::string(function_) + "() got an unexpected keyword argument '" + std::string(name) + "'");
        }
        const Value*& place = values_[static_cast<std::size_t>(found - names.begin())];
        if (place != nullptr) {
            type_error(std::string(function_) + "() got multiple values for argument '" + std::string(name) + "'");
        }
        place = &value;
    }
    for (std::size_t i = 0; i < required; ++i) {
        if (!has(i)) type_error(std::string(function_) + "() is missing a required argument");
    }
}

const Text& Bound::text(std::size_t i) const {
    const Value& value = *values_[i];
    require_defined(value);
    if (!value.is_text()) type_error(std::string(function_) + "() argument must be str, not " + value.type_name());
    return value.text();
}

std::string Namespace::repr() const {
    thread_local int depth = 0;
    struct Level {
        Level() { ++depth; }
        ~Level() { --depth; }
    } level;
    if (depth > 8) return "<Namespace ...>";  // it may hold itself
    return "<Namespace " + repr_of(Value(&attributes)) + ">";
}

void Namespace::check_name(std::string_view name) {
    if (!name.starts_with('_')) return;
    throw Failure("SecurityError",
                  "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
                      std::string(name) + "'. Please rename the attribute.");
}

}  // namespace attune::jinja
