#include "engine/text/jinja/macro.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>

namespace attune::jinja {

std::optional<Value> Macro::attribute(Arena& arena, std::string_view name, const Member&) {
    if (name == "name") return Value(code_.name);
    if (name == "catch_kwargs") return code_.catches_keywords;
    if (name == "catch_varargs") return code_.catches_positional;
    if (name == "caller") return code_.uses_caller;
    if (name != "arguments") return std::nullopt;
    Values names(arena);
    for (const Parameter& parameter : code_.parameters) names.push_back(Value(parameter.name));
    return make_tuple(names);
}

Value Macro::call(Context& context, const Arguments& arguments) {
    const Context::Nesting nesting(context);
    const Context::InFrame inside(context, context.make_frame(closure_, code_.slots));
    bind(context, arguments);
    Context::Capture capture(context);
    execute_all(code_.body, context);
    return capture.take().with_markup(context.autoescape);
}

void Macro::bind(Context& context, const Arguments& arguments) const {
    const auto slot = [&](int at) -> Value& { return context.frame->slots[static_cast<std::size_t>(at)]; };
    const std::size_t positional = std::min(arguments.positional.size(), code_.parameters.size());
    const auto parameter_of = [&](std::string_view name) {
        return std::find_if(code_.parameters.begin() + static_cast<std::ptrdiff_t>(positional), code_.parameters.end(),
                            [&](const Parameter& parameter) { return parameter.name == name; });
    };
    const bool takes_caller = code_.uses_caller && std::none_of(code_.parameters.begin(), code_.parameters.end(),
                                                                [](const Parameter& p) { return p.name == "caller"; });
    Values given(context.arena);
    given.append(arguments.positional.first(positional));
    while (given.size() < code_.parameters.size()) given.push_back(Value::unset());
    Value caller = undefined_because(context.arena, "No caller defined");
    Dict* rest = context.arena.make<Dict>(context.arena);
    for (const auto& [name, value] : arguments.keyword) {
        const auto parameter = parameter_of(name);
        if (parameter != code_.parameters.end()) {
            given[static_cast<std::size_t>(parameter - code_.parameters.begin())] = value;
        } else if (takes_caller && name == "caller") {
            caller = value;
        } else {
            rest->set(Value(name), value);
        }
    }
    if (takes_caller) slot(code_.caller) = caller;
    if (code_.catches_keywords) {
        slot(code_.kwargs) = rest;
    } else if (!rest->entries().empty()) {
        type_error("macro '" + std::string(code_.name) + "' takes no keyword argument '" +
                   std::string(rest->entries()[0].key.bytes()) + "'");
    }
    if (code_.catches_positional) {
        slot(code_.varargs) = make_tuple(Values(context.arena, arguments.positional.subspan(positional)));
    } else if (arguments.positional.size() > code_.parameters.size()) {
        type_error("macro '" + std::string(code_.name) + "' takes not more than " +
                   std::to_string(code_.parameters.size()) + " argument(s)");
    }
    // Defaults are computed in order and see the parameters before them.
    for (std::size_t i = 0; i < code_.parameters.size(); ++i) {
        const Parameter& parameter = code_.parameters[i];
        if (!given[i].is_unset()) {
            slot(parameter.slot) = given[i];
        } else if (parameter.fallback) {
            slot(parameter.slot) = parameter.fallback->evaluate(context);
        } else {
            const std::string hint = "parameter '" + std::string(parameter.name) + "' was not provided";
            slot(parameter.slot) = undefined_because(context.arena, context.arena.copy(hint));
        }
    }
}

}  // namespace attune::jinja
