#pragma once

#include "engine/text/jinja/ast.hpp"

namespace attune::jinja {

class Constant final : public Expression {
public:
    explicit Constant(Value value) : value_(std::move(value)) {}

protected:
    Value compute(Context&) const override { return value_; }

private:
    Value value_;
};

class Name final : public Expression {
public:
    Name(std::string name, Symbol symbol) : name_(std::move(name)), symbol_(symbol) {}
    const std::string& name() const { return name_; }
    Symbol symbol() const { return symbol_; }

protected:
    Value compute(Context& context) const override;

private:
    std::string name_;
    Symbol symbol_;
};

class ListDisplay final : public Expression {
public:
    ListDisplay(std::vector<ExpressionPtr> items, bool tuple) : items_(std::move(items)), tuple_(tuple) {}

protected:
    Value compute(Context& context) const override;

private:
    std::vector<ExpressionPtr> items_;
    bool tuple_;
};

class DictDisplay final : public Expression {
public:
    using Entries = std::vector<std::pair<ExpressionPtr, ExpressionPtr>>;
    explicit DictDisplay(Entries entries) : entries_(std::move(entries)) {}

protected:
    Value compute(Context& context) const override;

private:
    Entries entries_;
};

class Conditional final : public Expression {
public:
    Conditional(ExpressionPtr test, ExpressionPtr then, ExpressionPtr otherwise)
        : test_(std::move(test)), then_(std::move(then)), otherwise_(std::move(otherwise)) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr test_;
    ExpressionPtr then_;
    ExpressionPtr otherwise_;  // null: undefined
};

class Logical final : public Expression {
public:
    Logical(ExpressionPtr left, ExpressionPtr right, bool is_and)
        : left_(std::move(left)), right_(std::move(right)), is_and_(is_and) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr left_;
    ExpressionPtr right_;
    bool is_and_;
};

class Not final : public Expression {
public:
    explicit Not(ExpressionPtr operand) : operand_(std::move(operand)) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr operand_;
};

class Sign final : public Expression {
public:
    Sign(ExpressionPtr operand, bool negative) : operand_(std::move(operand)), negative_(negative) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr operand_;
    bool negative_;
};

class Binary final : public Expression {
public:
    Binary(BinaryOperator op, ExpressionPtr left, ExpressionPtr right)
        : op_(op), left_(std::move(left)), right_(std::move(right)) {}

protected:
    Value compute(Context& context) const override;

private:
    BinaryOperator op_;
    ExpressionPtr left_;
    ExpressionPtr right_;
};

/// `a ~ b ~ c`
class Concatenation final : public Expression {
public:
    explicit Concatenation(std::vector<ExpressionPtr> parts) : parts_(std::move(parts)) {}

protected:
    Value compute(Context& context) const override;

private:
    std::vector<ExpressionPtr> parts_;
};

/// `a < b <= c`
class Compare final : public Expression {
public:
    using Operands = std::vector<std::pair<Comparison, ExpressionPtr>>;
    Compare(ExpressionPtr first, Operands rest) : first_(std::move(first)), rest_(std::move(rest)) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr first_;
    Operands rest_;
};

class Attribute final : public Expression {
public:
    Attribute(ExpressionPtr owner, std::string name) : owner_(std::move(owner)), name_(std::move(name)) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr owner_;
    std::string name_;
};

class Item final : public Expression {
public:
    Item(ExpressionPtr owner, ExpressionPtr key) : owner_(std::move(owner)), key_(std::move(key)) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr owner_;
    ExpressionPtr key_;
};

/// `a[start:stop:step]`; null parts are left out.
class SliceItem final : public Expression {
public:
    SliceItem(ExpressionPtr owner, ExpressionPtr start, ExpressionPtr stop, ExpressionPtr step)
        : owner_(std::move(owner)), start_(std::move(start)), stop_(std::move(stop)), step_(std::move(step)) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr owner_;
    ExpressionPtr start_;
    ExpressionPtr stop_;
    ExpressionPtr step_;
};

class Call final : public Expression {
public:
    Call(ExpressionPtr callee, CallArguments arguments)
        : callee_(std::move(callee)), arguments_(std::move(arguments)) {}
    /// With one more keyword argument, `caller`.
    Value call_with(Context& context, Value caller) const;

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr callee_;
    CallArguments arguments_;
};

class FilterCall final : public Expression {
public:
    /// `filter` is null where an unknown name is an error only when it is reached. `subject` is null in filter blocks.
    FilterCall(ExpressionPtr subject, std::string name, Filter filter, CallArguments arguments)
        : subject_(std::move(subject)), name_(std::move(name)), filter_(filter), arguments_(std::move(arguments)) {}
    /// The filter (and those before it in a chain) on a block's text.
    Value apply(Context& context, const Value& block) const;

protected:
    Value compute(Context& context) const override;

private:
    Value run(Context& context, const Value& subject) const;
    ExpressionPtr subject_;
    std::string name_;
    Filter filter_;
    CallArguments arguments_;
};

class TestCall final : public Expression {
public:
    TestCall(ExpressionPtr subject, std::string name, Test test, CallArguments arguments)
        : subject_(std::move(subject)), name_(std::move(name)), test_(test), arguments_(std::move(arguments)) {}

protected:
    Value compute(Context& context) const override;

private:
    ExpressionPtr subject_;
    std::string name_;
    Test test_;
    CallArguments arguments_;
};

}  // namespace attune::jinja
