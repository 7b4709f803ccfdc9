#pragma once

#include "engine/text/jinja/context.hpp"
#include "engine/text/jinja/filters.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attune::jinja {

/// The parsed template: immutable, shared by all renderings.
class Expression {
public:
    virtual ~Expression() = default;
    Value evaluate(Context& context) const {
        context.charge();
        const Context::Nesting nesting(context);
        return compute(context);
    }

protected:
    virtual Value compute(Context& context) const = 0;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

class Statement {
public:
    virtual ~Statement() = default;
    Flow execute(Context& context) const {
        context.charge();
        const Context::Nesting nesting(context);
        return run(context);
    }

protected:
    virtual Flow run(Context& context) const = 0;
};
using StatementPtr = std::unique_ptr<const Statement>;
using Body = std::vector<StatementPtr>;

Flow execute_all(const Body& body, Context& context);

/// What may stand left of `=` and between `for` and `in`.
class Target {
public:
    virtual ~Target() = default;
    virtual void assign(Context& context, Value value) const = 0;
};
using TargetPtr = std::unique_ptr<const Target>;

struct CallArguments {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> keyword;
    ExpressionPtr star;       ///< *args, may be null
    ExpressionPtr star_star;  ///< **kwargs, may be null

    Arguments evaluate(Context& context) const;
};

struct Parameter {
    std::string name;
    Symbol symbol = 0;
    ExpressionPtr fallback;  ///< null: none
};

/// Parameters and body of a macro or of a call block's caller.
struct MacroCode {
    std::string name;
    std::vector<Parameter> parameters;
    bool uses_caller = false;
    bool catches_keywords = false;
    bool catches_positional = false;
    Symbol caller = 0;
    Symbol kwargs = 0;
    Symbol varargs = 0;
    Body body;
};

enum class BinaryOperator : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison : std::uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

}  // namespace attune::jinja
