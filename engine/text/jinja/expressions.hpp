#pragma once

#include "engine/text/jinja/ast.hpp"
#include "engine/text/jinja/members.hpp"

namespace attune::jinja {

class Constant final : public Expression {
public:
    explicit Constant(const Value& value) : value_(value) { mark_fixed(); }
    Value evaluate(Context&) const override { return value_; }
    const Value* constant() const override { return &value_; }

private:
    Value value_;
};

class Name final : public Expression {
public:
    /// `undefined` is what the name gives when nothing is assigned to it.
    Name(std::string_view name, Symbol symbol, Value undefined) : reference_(name, symbol), undefined_(undefined) {}
    Value evaluate(Context& context) const override {
        const Value& value = reference_.find(context);
        return value.is_unset() ? undefined_ : value;
    }
    Reference& reference() { return reference_; }

private:
    Reference reference_;
    Value undefined_;
};

class ListDisplay final : public Expression {
public:
    ListDisplay(std::vector<ExpressionPtr> items, bool tuple) : items_(std::move(items)), tuple_(tuple) {}
    Value evaluate(Context& context) const override;

private:
    std::vector<ExpressionPtr> items_;
    bool tuple_;
};

class DictDisplay final : public Expression {
public:
    using Entries = std::vector<std::pair<ExpressionPtr, ExpressionPtr>>;
    explicit DictDisplay(Entries entries) : entries_(std::move(entries)) {}
    Value evaluate(Context& context) const override;

private:
    Entries entries_;
};

class Conditional final : public Expression {
public:
    Conditional(ExpressionPtr test, ExpressionPtr then, ExpressionPtr otherwise)
        : test_(std::move(test)), then_(std::move(then)), otherwise_(std::move(otherwise)) {}
    Value evaluate(Context& context) const override;
    void print(Context& context) const override;

private:
    ExpressionPtr test_;
    ExpressionPtr then_;
    ExpressionPtr otherwise_;  // null: undefined
};

class Logical final : public Expression {
public:
    Logical(ExpressionPtr left, ExpressionPtr right, bool is_and)
        : left_(std::move(left)), right_(std::move(right)), is_and_(is_and) {}
    Value evaluate(Context& context) const override;

private:
    ExpressionPtr left_;
    ExpressionPtr right_;
    bool is_and_;
};

class Not final : public Expression {
public:
    explicit Not(ExpressionPtr operand) : operand_(std::move(operand)) {}
    Value evaluate(Context& context) const override;

private:
    ExpressionPtr operand_;
};

class Sign final : public Expression {
public:
    Sign(ExpressionPtr operand, bool negative) : operand_(std::move(operand)), negative_(negative) {}
    Value evaluate(Context& context) const override;

private:
    ExpressionPtr operand_;
    bool negative_;
};

class Binary final : public Expression {
public:
    Binary(BinaryOperator op, ExpressionPtr left, ExpressionPtr right)
        : op_(op), left_(std::move(left)), right_(std::move(right)) {}
    Value evaluate(Context& context) const override;

private:
    BinaryOperator op_;
    ExpressionPtr left_;
    ExpressionPtr right_;
};

/// `a + b + c`, from the left. As a node of its own, texts are put together once and not pair by pair.
class Sum final : public Expression {
public:
    explicit Sum(std::vector<ExpressionPtr> parts) : parts_(std::move(parts)) {}
    Value evaluate(Context& context) const override;
    void print(Context& context) const override;

private:
    std::vector<ExpressionPtr> parts_;
};

/// `a ~ b ~ c`
class Concatenation final : public Expression {
public:
    explicit Concatenation(std::vector<ExpressionPtr> parts) : parts_(std::move(parts)) {}
    Value evaluate(Context& context) const override;
    void print(Context& context) const override;

private:
    std::vector<ExpressionPtr> parts_;
};

/// `a < b <= c`
class Compare final : public Expression {
public:
    using Operands = std::vector<std::pair<Comparison, ExpressionPtr>>;
    Compare(ExpressionPtr first, Operands rest) : first_(std::move(first)), rest_(std::move(rest)) {}
    Value evaluate(Context& context) const override;

private:
    ExpressionPtr first_;
    Operands rest_;
};

/// `owner.name`
class Attribute final : public Expression {
public:
    Attribute(ExpressionPtr owner, std::string_view name)
        : owner_(std::move(owner)), name_(name), member_(&find_member(name)) {}
    Value evaluate(Context& context) const override;
    /// Calls it: a method is called without being made a value first.
    Value call(Context& context, const CallArguments& arguments, const Keyword* added) const;

private:
    ExpressionPtr owner_;
    std::string_view name_;
    const Member* member_;
};

class Item final : public Expression {
public:
    Item(ExpressionPtr owner, ExpressionPtr key)
        : owner_(std::move(owner)), key_(std::move(key)), constant_(key_->constant()) {}
    Value evaluate(Context& context) const override;

private:
    ExpressionPtr owner_;
    ExpressionPtr key_;
    const Value* constant_;  // the key, if it is one
};

/// `a[start:stop:step]`; null parts are left out.
class SliceItem final : public Expression {
public:
    SliceItem(ExpressionPtr owner, ExpressionPtr start, ExpressionPtr stop, ExpressionPtr step)
        : owner_(std::move(owner)), start_(std::move(start)), stop_(std::move(stop)), step_(std::move(step)) {}
    Value evaluate(Context& context) const override;

private:
    ExpressionPtr owner_;
    ExpressionPtr start_;
    ExpressionPtr stop_;
    ExpressionPtr step_;
};

class Call final : public Expression {
public:
    Call(ExpressionPtr callee, CallArguments arguments)
        : callee_(std::move(callee)),
          attribute_(dynamic_cast<const Attribute*>(callee_.get())),
          arguments_(std::move(arguments)) {}
    Value evaluate(Context& context) const override { return call_with(context, nullptr); }
    /// With one more keyword argument, if not null.
    Value call_with(Context& context, const Keyword* added) const;

private:
    ExpressionPtr callee_;
    const Attribute* attribute_;  // the callee, if it is one
    CallArguments arguments_;
};

class FilterCall final : public Expression {
public:
    /// `filter` is null where an unknown name is an error only when it is reached. `subject` is null in filter blocks.
    FilterCall(ExpressionPtr subject, std::string_view name, Filter filter, CallArguments arguments)
        : subject_(std::move(subject)), name_(name), filter_(filter), arguments_(std::move(arguments)) {}
    /// The filter (and those before it in a chain) on a block's text.
    Value apply(Context& context, const Value& block) const;
    Value evaluate(Context& context) const override;

private:
    Value run(Context& context, const Value& subject) const;
    ExpressionPtr subject_;
    std::string_view name_;
    Filter filter_;
    CallArguments arguments_;
};

class TestCall final : public Expression {
public:
    TestCall(ExpressionPtr subject, std::string_view name, Test test, CallArguments arguments)
        : subject_(std::move(subject)), name_(name), test_(test), arguments_(std::move(arguments)) {}
    Value evaluate(Context& context) const override;

private:
    ExpressionPtr subject_;
    std::string_view name_;
    Test test_;
    CallArguments arguments_;
};

}  // namespace attune::jinja
