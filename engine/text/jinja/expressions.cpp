#include "engine/text/jinja/expressions.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

namespace attune::jinja {

Arguments CallArguments::evaluate(Context& context) const {
    Arguments arguments;
    arguments.positional.reserve(positional.size() + 1);
    for (const auto& argument : positional) arguments.positional.push_back(argument->evaluate(context));
    for (const auto& [name, argument] : keyword) arguments.keyword.emplace_back(name, argument->evaluate(context));
    if (star) {
        const auto more = items_of(context, star->evaluate(context));
        arguments.positional.insert(arguments.positional.end(), more->items.begin(), more->items.end());
    }
    if (star_star) {
        const Value more = star_star->evaluate(context);
        if (!more.is_dict()) type_error("argument after ** must be a mapping, not " + more.type_name());
        for (const auto& [name, value] : more.dict().entries) {
            if (!name.is_text()) type_error("keywords must be strings");
            arguments.keyword.emplace_back(name.bytes(), value);
        }
    }
    return arguments;
}

Value Name::compute(Context& context) const {
    if (const Value* value = context.scope->find(symbol_)) return *value;
    Undefined undefined;
    undefined.name = name_;
    return undefined;
}

Value ListDisplay::compute(Context& context) const {
    List list;
    list.tuple = tuple_;
    list.items.reserve(items_.size());
    for (const auto& item : items_) list.items.push_back(item->evaluate(context));
    return list;
}

Value DictDisplay::compute(Context& context) const {
    Dict dict;
    for (const auto& [key_code, value_code] : entries_) {
        Value key = key_code->evaluate(context);
        require_hashable(key);
        dict.set(std::move(key), value_code->evaluate(context));
    }
    return dict;
}

Value Conditional::compute(Context& context) const {
    if (is_true(test_->evaluate(context))) return then_->evaluate(context);
    if (otherwise_) return otherwise_->evaluate(context);
    Undefined undefined;
    undefined.hint = "the inline if-expression evaluated to false and no else section was defined.";
    return undefined;
}

Value Logical::compute(Context& context) const {
    Value left = left_->evaluate(context);
    return is_true(left) == is_and_ ? right_->evaluate(context) : left;
}

Value Not::compute(Context& context) const { return !is_true(operand_->evaluate(context)); }

Value Sign::compute(Context& context) const {
    const Value value = operand_->evaluate(context);
    require_defined(value);
    if (!value.is_number()) {
        type_error(std::string("bad operand type for unary ") + (negative_ ? "-" : "+") + ": '" + value.type_name() +
                   "'");
    }
    if (negative_) return negate(value);
    return value.is_float() ? value : Value(value.integer());
}

Value Binary::compute(Context& context) const {
    const Value left = left_->evaluate(context);
    return apply(context, op_, left, right_->evaluate(context));
}

Value Concatenation::compute(Context& context) const {
    TextBuilder builder;
    for (const auto& part : parts_) {
        const Value value = part->evaluate(context);
        if (value.is_text()) {
            builder.append(value.text());
        } else {
            builder.append(to_text(value));
        }
    }
    context.charge_bytes(builder.size());
    return builder.take();
}

Value Compare::compute(Context& context) const {
    Value left = first_->evaluate(context);
    for (const auto& [comparison, operand] : rest_) {
        Value right = operand->evaluate(context);
        if (!compare(context, comparison, left, right)) return false;
        left = std::move(right);
    }
    return true;
}

Value Attribute::compute(Context& context) const { return attribute_of(context, owner_->evaluate(context), name_); }

Value Item::compute(Context& context) const {
    const Value owner = owner_->evaluate(context);
    return item_of(context, owner, key_->evaluate(context));
}

Value SliceItem::compute(Context& context) const {
    const Value owner = owner_->evaluate(context);
    const auto part = [&](const ExpressionPtr& code) { return code ? code->evaluate(context) : Value(); };
    const Value start = part(start_);
    const Value stop = part(stop_);
    return slice_of(context, owner, start, stop, part(step_));
}

Value Call::compute(Context& context) const {
    const Value callee = callee_->evaluate(context);
    return call(context, callee, arguments_.evaluate(context));
}

Value Call::call_with(Context& context, Value caller) const {
    const Value callee = callee_->evaluate(context);
    Arguments arguments = arguments_.evaluate(context);
    arguments.keyword.emplace_back("caller", std::move(caller));
    return call(context, callee, std::move(arguments));
}

Value FilterCall::compute(Context& context) const { return run(context, subject_->evaluate(context)); }

Value FilterCall::apply(Context& context, const Value& block) const {
    const Context::Nesting nesting(context);
    if (!subject_) return run(context, block);
    return run(context, static_cast<const FilterCall&>(*subject_).apply(context, block));
}

Value FilterCall::run(Context& context, const Value& subject) const {
    if (filter_ == nullptr) throw Failure("TemplateRuntimeError", "No filter named '" + name_ + "' found.");
    return filter_(context, subject, arguments_.evaluate(context));
}

Value TestCall::compute(Context& context) const {
    const Value subject = subject_->evaluate(context);
    if (test_ == nullptr) throw Failure("TemplateRuntimeError", "No test named '" + name_ + "' found.");
    return test_(context, subject, arguments_.evaluate(context));
}

}  // namespace attune::jinja
