#include "engine/text/jinja/template.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

namespace attune::jinja {

std::variant<Template, TemplateError> Template::parse(std::string_view source) {
    try {
        Template made;
        made.arena_ = std::make_unique<Arena>();
        ParsedTemplate parsed = parse_template(*made.arena_, source);
        made.body_ = std::move(parsed.body);
        made.symbols_ = std::move(parsed.symbols);
        made.globals_.assign(made.symbols_.size(), Value::unset());
        for (const auto& [name, body] : globals()) {
            const auto symbol = made.symbols_.find(name);
            if (symbol == made.symbols_.end()) continue;
            made.globals_[static_cast<std::size_t>(symbol->second)] =
                made.arena_->make<Function>(name, body, Value(), "function");
        }
        return made;
    } catch (const Failure& failure) {
        return TemplateError{failure.type(), failure.what()};
    }
}

std::variant<Text, TemplateError> Template::render(Arena& arena, std::span<const Variable> variables,
                                                   const std::tm& now, const Limits& limits) const {
    try {
        Values slots(arena, globals_);
        for (const Variable& variable : variables) {
            const auto symbol = symbols_.find(variable.name);
            if (symbol != symbols_.end()) slots[static_cast<std::size_t>(symbol->second)] = variable.value;
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
