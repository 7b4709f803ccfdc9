#include "engine/text/jinja/template.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

namespace attune::jinja {

std::variant<Template, TemplateError> Template::parse(std::string_view source) {
    try {
        ParsedTemplate parsed = parse_template(source);
        Template made;
        made.body_ = std::move(parsed.body);
        made.symbols_ = std::move(parsed.symbols);
        made.globals_ = std::make_shared<Scope>();
        for (auto& [name, value] : make_globals()) {
            const auto symbol = made.symbols_.find(name);
            if (symbol != made.symbols_.end()) made.globals_->set(symbol->second, std::move(value));
        }
        return made;
    } catch (const Failure& failure) {
        return TemplateError{failure.type(), failure.what()};
    }
}

std::variant<Text, TemplateError> Template::render(const std::vector<Variable>& variables, std::tm now,
                                                   const Limits& limits) const {
    const auto root = std::make_shared<Scope>();
    root->parent = globals_;
    for (const Variable& variable : variables) {
        const auto symbol = symbols_.find(variable.name);
        if (symbol != symbols_.end()) root->set(symbol->second, variable.value);
    }
    Context context(limits, root, now);
    TextBuilder output;
    context.output = &output;
    context.will_cut(root);
    try {
        execute_all(body_, context);
    } catch (const Failure& failure) {
        return TemplateError{failure.type(), failure.what()};
    }
    return output.take();
}

}  // namespace attune::jinja
