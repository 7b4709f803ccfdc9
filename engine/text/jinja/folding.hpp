#pragma once

#include "engine/text/jinja/ast.hpp"

#include <ctime>
#include <memory>

namespace attune::jinja {

/// Does the work that depends on constants alone once, while a template is parsed, as jinja2 does. An expression is
/// fixed when it reads no name; what is no plain value (a generator, a bound method) stays an expression, fixed or not.
class ConstantFolder {
public:
    /// Constants go to `arena`.
    explicit ConstantFolder(Arena& arena);

    /// For an expression with fixed operands: the constant it is worth. One that fails, or takes more than is left of
    /// the budget, is left as it is: it may never be reached, and fails then in its place.
    ExpressionPtr folded(std::unique_ptr<Expression> made);
    /// As `{{ value }}` shows it: constants of any kind become texts.
    ExpressionPtr shown(ExpressionPtr value);

private:
    Frame root_;
    std::tm never_{};
    Context context_;
};

}  // namespace attune::jinja
