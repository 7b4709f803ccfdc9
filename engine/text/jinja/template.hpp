#pragma once

#include "engine/text/jinja/ast.hpp"

#include <ctime>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace attune::jinja {

/// A failure as a value: Python's name of the exception and its text.
struct TemplateError {
    std::string type;
    std::string message;
};

struct Variable {
    std::string name;
    Value value;
};

/// A parsed Jinja template in the dialect of Hugging Face's chat templates (sandboxed, immutable, trim_blocks,
/// lstrip_blocks, loop controls, generation tags). Immutable; any thread.
class Template {
public:
    static std::variant<Template, TemplateError> parse(std::string_view source);

    std::variant<Text, TemplateError> render(const std::vector<Variable>& variables, std::tm now,
                                             const Limits& limits = {}) const;

private:
    Template() = default;
    Body body_;
    std::unordered_map<std::string, Symbol> symbols_;
    std::shared_ptr<Scope> globals_;  // names that every template has; never changed
};

/// The numbering of names, and the tree.
struct ParsedTemplate {
    Body body;
    std::unordered_map<std::string, Symbol> symbols;
};
/// Throws Failure.
ParsedTemplate parse_template(std::string_view source);

}  // namespace attune::jinja
