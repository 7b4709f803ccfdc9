#pragma once

#include "engine/text/jinja/expressions.hpp"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune::jinja {

class NameTarget final : public Target {
public:
    explicit NameTarget(int slot) : slot_(slot) {}
    void assign(Context& context, const Value& value) const override {
        context.frame->slots[static_cast<std::size_t>(slot_)] = value;
    }

private:
    int slot_;
};

class TupleTarget final : public Target {
public:
    explicit TupleTarget(std::vector<TargetPtr> parts) : parts_(std::move(parts)) {}
    void assign(Context& context, const Value& value) const override;

private:
    std::vector<TargetPtr> parts_;
};

/// `ns.attribute`
class NamespaceTarget final : public Target {
public:
    NamespaceTarget(std::string_view name, Symbol symbol, std::string_view attribute)
        : reference_(name, symbol), attribute_(attribute) {}
    void assign(Context& context, const Value& value) const override;
    Reference& reference() { return reference_; }

private:
    Reference reference_;
    std::string_view attribute_;
};

class Data final : public Statement {
public:
    void append(std::string_view text) { text_ += text; }
    Flow execute(Context& context) const override;

private:
    std::string text_;
};

class Print final : public Statement {
public:
    explicit Print(ExpressionPtr value) : value_(std::move(value)) {}
    Flow execute(Context& context) const override;

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
    Flow execute(Context& context) const override;

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
        bool keeps_frames = false;  ///< a macro in the body may outlive its turn
        int loop = 0;               ///< slot of `loop`
        std::size_t test_slots = 0;
        std::size_t body_slots = 0;
        std::size_t otherwise_slots = 0;
        Body body;
        Body otherwise;
    };
    explicit For(Parts parts) : parts_(std::move(parts)) {}
    bool is_recursive() const { return parts_.recursive; }
    Flow execute(Context& context) const override;
    /// Runs the loop over `iterable`; `depth` counts recursion from 0.
    Flow iterate(Context& context, const Value& iterable, int depth) const;

private:
    std::span<const Value> passing(Context& context, std::span<const Value> items) const;
    Parts parts_;
};

class LoopJump final : public Statement {
public:
    explicit LoopJump(Flow flow) : flow_(flow) {}
    Flow execute(Context&) const override { return flow_; }

private:
    Flow flow_;
};

class Set final : public Statement {
public:
    Set(TargetPtr target, ExpressionPtr value) : target_(std::move(target)), value_(std::move(value)) {}
    Flow execute(Context& context) const override;

private:
    TargetPtr target_;
    ExpressionPtr value_;
};

/// `{% set x %}...{% endset %}`
class SetBlock final : public Statement {
public:
    SetBlock(TargetPtr target, std::unique_ptr<const FilterCall> filter, Body body, std::size_t slots)
        : target_(std::move(target)), filter_(std::move(filter)), body_(std::move(body)), slots_(slots) {}
    Flow execute(Context& context) const override;

private:
    TargetPtr target_;
    std::unique_ptr<const FilterCall> filter_;  // null: none
    Body body_;
    std::size_t slots_;
};

class With final : public Statement {
public:
    using Bindings = std::vector<std::pair<TargetPtr, ExpressionPtr>>;
    With(Bindings bindings, Body body, std::size_t slots)
        : bindings_(std::move(bindings)), body_(std::move(body)), slots_(slots) {}
    Flow execute(Context& context) const override;

private:
    Bindings bindings_;
    Body body_;
    std::size_t slots_;
};

class FilterBlock final : public Statement {
public:
    FilterBlock(std::unique_ptr<const FilterCall> filter, Body body, std::size_t slots)
        : filter_(std::move(filter)), body_(std::move(body)), slots_(slots) {}
    Flow execute(Context& context) const override;

private:
    std::unique_ptr<const FilterCall> filter_;
    Body body_;
    std::size_t slots_;
};

class MacroDefinition final : public Statement {
public:
    MacroDefinition(int slot, std::unique_ptr<const MacroCode> code) : slot_(slot), code_(std::move(code)) {}
    Flow execute(Context& context) const override;

private:
    int slot_;
    std::unique_ptr<const MacroCode> code_;
};

class CallBlock final : public Statement {
public:
    CallBlock(std::unique_ptr<const Call> call, std::unique_ptr<const MacroCode> caller)
        : call_(std::move(call)), caller_(std::move(caller)) {}
    Flow execute(Context& context) const override;

private:
    std::unique_ptr<const Call> call_;
    std::unique_ptr<const MacroCode> caller_;
};

/// A body with a scope of its own: {% block %} (seeing only the template's own names unless scoped) and {% generation
/// %}.
class Block final : public Statement {
public:
    Block(Body body, std::size_t slots, bool sees_surroundings)
        : body_(std::move(body)), slots_(slots), sees_surroundings_(sees_surroundings) {}
    Flow execute(Context& context) const override;

private:
    Body body_;
    std::size_t slots_;
    bool sees_surroundings_;
};

class Autoescape final : public Statement {
public:
    Autoescape(ExpressionPtr on, Body body, std::size_t slots)
        : on_(std::move(on)), body_(std::move(body)), slots_(slots) {}
    Flow execute(Context& context) const override;

private:
    ExpressionPtr on_;
    Body body_;
    std::size_t slots_;
};

/// include, import and extends: there are no other templates.
class NoLoader final : public Statement {
public:
    Flow execute(Context& context) const override;
};

}  // namespace attune::jinja
