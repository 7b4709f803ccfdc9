#pragma once

#include "engine/text/jinja/ast.hpp"

#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace attune::jinja {

/// A failure as a value: Python's name of the exception and its text.
struct TemplateError {
    std::string type;
    std::string message;
};

struct Variable {
    std::string_view name;
    Value value;
};

/// A parsed Jinja template in the dialect of Hugging Face's chat templates (sandboxed, immutable, trim_blocks,
/// lstrip_blocks, loop controls, generation tags). Immutable; any thread.
class Template {
public:
    static std::variant<Template, TemplateError> parse(std::string_view source);

    /// The text lives in `arena`, as all that the rendering makes; the variables must live as long.
    std::variant<Text, TemplateError> render(Arena& arena, std::span<const Variable> variables, const std::tm& now,
                                             const Limits& limits = {}) const;
    /// Whether it names the variable or function.
    bool names(std::string_view name) const { return symbol_of(name) >= 0; }

private:
    Template() = default;
    /// -1: the template does not say it.
    Symbol symbol_of(std::string_view name) const;

    std::unique_ptr<Arena> arena_;  // constants and names
    Body body_;
    std::vector<std::pair<std::string_view, Symbol>> symbols_;  // by length, then bytes
    std::vector<Value> globals_;  // by symbol: what every template has, unset where the name is the template's own
};

/// The numbering of names, and the tree.
struct ParsedTemplate {
    Body body;
    std::unordered_map<std::string_view, Symbol> symbols;
};
/// Texts of the tree live in `arena`. Throws Failure.
ParsedTemplate parse_template(Arena& arena, std::string_view source);

}  // namespace attune::jinja
