#include "engine/text/jinja/template.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>

namespace attune::jinja {
namespace {

/// Most names differ in length: fewer bytes are looked at than in the order of the alphabet.
bool comes_before(std::string_view left, std::string_view right) {
    return left.size() != right.size() ? left.size() < right.size() : left < right;
}

}  // namespace

std::variant<Template, TemplateError> Template::parse(std::string_view source) {
    if (!is_valid_utf8(source)) return TemplateError{"UnicodeDecodeError", "the template is not valid UTF-8"};
    try {
        Template made;
        made.arena_ = std::make_unique<Arena>();
        ParsedTemplate parsed = parse_template(*made.arena_, source);
        made.body_ = std::move(parsed.body);
        made.symbols_.assign(parsed.symbols.begin(), parsed.symbols.end());
        std::sort(made.symbols_.begin(), made.symbols_.end(),
                  [](const auto& left, const auto& right) { return comes_before(left.first, right.first); });
        made.globals_.assign(made.symbols_.size(), Value::unset());
        for (const auto& [name, body] : globals()) {
            const Symbol symbol = made.symbol_of(name);
            if (symbol < 0) continue;
            made.globals_[static_cast<std::size_t>(symbol)] =
                made.arena_->make<Function>(name, body, Value(), "function");
        }
        return made;
    } catch (const Failure& failure) {
        return TemplateError{failure.type(), failure.what()};
    }
}

Symbol Template::symbol_of(std::string_view name) const {
    const auto found =
        std::lower_bound(symbols_.begin(), symbols_.end(), name,
                         [](const auto& one, std::string_view wanted) { return comes_before(one.first, wanted); });
    return found != symbols_.end() && same_bytes(found->first, name) ? found->second : -1;
}

std::variant<Text, TemplateError> Template::render(Arena& arena, std::span<const Variable> variables,
                                                   const std::tm& now, const Limits& limits) const {
    try {
        Values slots(arena, globals_);
        for (const Variable& variable : variables) {
            const Symbol symbol = symbol_of(variable.name);
            if (symbol >= 0) slots[static_cast<std::size_t>(symbol)] = variable.value;
        }
        Frame root{nullptr, {slots.begin(), slots.size()}};
        Context context(arena, limits, root, now);
        TextBuilder output(arena);
        context.output = &output;
        execute_all(body_, context);
        return output.take();
    } catch (const Failure& failure) {
        return TemplateError{failure.type(), failure.what()};
    }
}

}  // namespace attune::jinja
