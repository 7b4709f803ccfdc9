#pragma once

#include "engine/text/jinja/expressions.hpp"

#include <optional>

namespace attune::jinja {

class NameTarget final : public Target {
public:
    explicit NameTarget(Symbol symbol) : symbol_(symbol) {}
    void assign(Context& context, Value value) const override { context.scope->set(symbol_, std::move(value)); }

private:
    Symbol symbol_;
};

class TupleTarget final : public Target {
public:
    explicit TupleTarget(std::vector<TargetPtr> parts) : parts_(std::move(parts)) {}
    void assign(Context& context, Value value) const override;

private:
    std::vector<TargetPtr> parts_;
};

/// `ns.attribute`
class NamespaceTarget final : public Target {
public:
    NamespaceTarget(Symbol symbol, std::string attribute) : symbol_(symbol), attribute_(std::move(attribute)) {}
    void assign(Context& context, Value value) const override;

private:
    Symbol symbol_;
    std::string attribute_;
};

class Data final : public Statement {
public:
    explicit Data(std::string text) : text_(std::move(text)) {}

protected:
    Flow run(Context& context) const override;

private:
    Text text_;
};

class Print final : public Statement {
public:
    explicit Print(ExpressionPtr value) : value_(std::move(value)) {}

protected:
    Flow run(Context& context) const override;

private:
    ExpressionPtr value_;
};

class If final : public Statement {
public:
    struct Branch {
        ExpressionPtr test;  // null: else
        Body body;
    };
    explicit If(std::vector<Branch> branches) : branches_(std::move(branches)) {}

protected:
    Flow run(Context& context) const override;

private:
    std::vector<Branch> branches_;
};

class For final : public Statement {
public:
    struct Parts {
        TargetPtr target;
        ExpressionPtr iterable;
        ExpressionPtr test;  ///< null: all items
        bool recursive = false;
        Symbol loop = 0;
        Body body;
        Body otherwise;
    };
    explicit For(Parts parts) : parts_(std::move(parts)) {}
    /// Runs the loop over `iterable`; `depth` counts recursion from 0.
    Flow iterate(Context& context, const Value& iterable, int depth) const;

protected:
    Flow run(Context& context) const override;

private:
    Parts parts_;
};

class LoopJump final : public Statement {
public:
    explicit LoopJump(Flow flow) : flow_(flow) {}

protected:
    Flow run(Context&) const override { return flow_; }

private:
    Flow flow_;
};

class Set final : public Statement {
public:
    Set(TargetPtr target, ExpressionPtr value) : target_(std::move(target)), value_(std::move(value)) {}

protected:
    Flow run(Context& context) const override;

private:
    TargetPtr target_;
    ExpressionPtr value_;
};

/// `{% set x %}...{% endset %}`
class SetBlock final : public Statement {
public:
    SetBlock(TargetPtr target, std::unique_ptr<const FilterCall> filter, Body body)
        : target_(std::move(target)), filter_(std::move(filter)), body_(std::move(body)) {}

protected:
    Flow run(Context& context) const override;

private:
    TargetPtr target_;
    std::unique_ptr<const FilterCall> filter_;  // null: none
    Body body_;
};

class With final : public Statement {
public:
    using Bindings = std::vector<std::pair<TargetPtr, ExpressionPtr>>;
    With(Bindings bindings, Body body) : bindings_(std::move(bindings)), body_(std::move(body)) {}

protected:
    Flow run(Context& context) const override;

private:
    Bindings bindings_;
    Body body_;
};

class FilterBlock final : public Statement {
public:
    FilterBlock(std::unique_ptr<const FilterCall> filter, Body body)
        : filter_(std::move(filter)), body_(std::move(body)) {}

protected:
    Flow run(Context& context) const override;

private:
    std::unique_ptr<const FilterCall> filter_;
    Body body_;
};

class MacroDefinition final : public Statement {
public:
    MacroDefinition(Symbol symbol, std::shared_ptr<const MacroCode> code) : symbol_(symbol), code_(std::move(code)) {}

protected:
    Flow run(Context& context) const override;

private:
    Symbol symbol_;
    std::shared_ptr<const MacroCode> code_;
};

class CallBlock final : public Statement {
public:
    CallBlock(std::unique_ptr<const Call> call, std::shared_ptr<const MacroCode> caller)
        : call_(std::move(call)), caller_(std::move(caller)) {}

protected:
    Flow run(Context& context) const override;

private:
    std::unique_ptr<const Call> call_;
    std::shared_ptr<const MacroCode> caller_;
};

/// A body with a scope of its own: {% block %} (seeing only the template's own names unless scoped) and {% generation
/// %}.
class Block final : public Statement {
public:
    Block(Body body, bool sees_surroundings) : body_(std::move(body)), sees_surroundings_(sees_surroundings) {}

protected:
    Flow run(Context& context) const override;

private:
    Body body_;
    bool sees_surroundings_;
};

class Autoescape final : public Statement {
public:
    Autoescape(ExpressionPtr on, Body body) : on_(std::move(on)), body_(std::move(body)) {}

protected:
    Flow run(Context& context) const override;

private:
    ExpressionPtr on_;
    Body body_;
};

/// include, import and extends: there are no other templates.
class NoLoader final : public Statement {
protected:
    Flow run(Context& context) const override;
};

}  // namespace attune::jinja
