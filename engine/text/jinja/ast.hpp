#pragma once

#include "engine/text/jinja/context.hpp"
#include "engine/text/jinja/filters.hpp"

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace attune::jinja {

/// The parsed template: immutable, shared by all renderings.
class Expression {
public:
    virtual ~Expression() = default;
    virtual Value evaluate(Context& context) const = 0;
    /// Emits the value. A sum of texts does so part by part, without making the whole.
    virtual void print(Context& context) const { context.emit(evaluate(context)); }
    /// The value of a constant, else null.
    virtual const Value* constant() const { return nullptr; }
    /// Depends on no name: constants, and what is made of them.
    bool is_fixed() const { return is_fixed_; }
    void mark_fixed() { is_fixed_ = true; }

private:
    bool is_fixed_ = false;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

class Statement {
public:
    virtual ~Statement() = default;
    virtual Flow execute(Context& context) const = 0;
};
using StatementPtr = std::unique_ptr<const Statement>;
using Body = std::vector<StatementPtr>;

Flow execute_all(const Body& body, Context& context);

/// A name as it is used: where its value may be, innermost first. The parser resolves it when it knows all blocks
/// around; a slot that is still unset leaves the name to the next place.
class Reference {
public:
    struct Place {
        int hops;  ///< frames outward from the place before
        int slot;
    };

    Reference(std::string_view name, Symbol symbol) : name_(name), symbol_(symbol) {}
    std::string_view name() const { return name_; }
    Symbol symbol() const { return symbol_; }
    void resolve(std::vector<Place> places) { places_ = std::move(places); }
    /// Unset when nothing was assigned.
    const Value& find(const Context& context) const {
        const Frame* frame = context.frame;
        for (const Place& place : places_) {
            for (int i = 0; i < place.hops; ++i) frame = frame->parent;
            const Value& value = frame->slots[static_cast<std::size_t>(place.slot)];
            if (!value.is_unset()) return value;
        }
        return context.root.slots[static_cast<std::size_t>(symbol_)];
    }

private:
    std::string_view name_;
    Symbol symbol_;
    std::vector<Place> places_;  // all but the outermost frame
};

/// What may stand left of `=` and between `for` and `in`.
class Target {
public:
    virtual ~Target() = default;
    virtual void assign(Context& context, const Value& value) const = 0;
};
using TargetPtr = std::unique_ptr<const Target>;

struct CallArguments {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string_view, ExpressionPtr>> keyword;
    ExpressionPtr star;       ///< *args, may be null
    ExpressionPtr star_star;  ///< **kwargs, may be null

    Arguments evaluate(Context& context) const {
        if (positional.empty() && keyword.empty() && !star && !star_star) return {};
        return evaluate_all(context, nullptr);
    }
    /// With one more keyword argument, if not null.
    Arguments evaluate_all(Context& context, const Keyword* added) const;
    bool are_fixed() const;
};

struct Parameter {
    std::string_view name;
    int slot = 0;
    ExpressionPtr fallback;  ///< null: none
};

/// Parameters and body of a macro or of a call block's caller.
struct MacroCode {
    std::string_view name;
    std::vector<Parameter> parameters;
    bool uses_caller = false;
    bool catches_keywords = false;
    bool catches_positional = false;
    int caller = 0;  ///< slots
    int kwargs = 0;
    int varargs = 0;
    std::size_t slots = 0;  ///< of the whole frame
    Body body;
};

enum class BinaryOperator : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison : std::uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

}  // namespace attune::jinja
