#include "engine/text/jinja/expressions.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>

namespace attune::jinja {

Arguments CallArguments::evaluate_all(Context& context, const Keyword* added) const {
    Values values(context.arena);
    values.reserve(positional.size());
    for (const auto& argument : positional) values.push_back(argument->evaluate(context));
    ArenaVector<Keyword> keywords(context.arena);
    for (const auto& [name, argument] : keyword) keywords.push_back({name, argument->evaluate(context)});
    if (star) values.append(items_of(context, star->evaluate(context)));
    if (star_star) {
        const Value more = star_star->evaluate(context);
        if (!more.is_dict()) type_error("argument after ** must be a mapping, not " + more.type_name());
        for (const auto& [name, value] : more.dict().entries()) {
            if (!name.is_text()) type_error("keywords must be strings");
            keywords.push_back({name.bytes(), value});
        }
    }
    if (added != nullptr) keywords.push_back(*added);
    return {values.view(), keywords.view()};
}

bool CallArguments::are_fixed() const {
    const auto is_fixed = [](const ExpressionPtr& code) { return !code || code->is_fixed(); };
    return is_fixed(star) && is_fixed(star_star) && std::all_of(positional.begin(), positional.end(), is_fixed) &&
           std::all_of(keyword.begin(), keyword.end(), [&](const auto& named) { return is_fixed(named.second); });
}

Value ListDisplay::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    Values items(context.arena);
    items.reserve(items_.size());
    for (const auto& item : items_) items.push_back(item->evaluate(context));
    return tuple_ ? make_tuple(items) : make_list(items);
}

Value DictDisplay::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    Dict* dict = context.arena.make<Dict>(context.arena);
    dict->reserve(entries_.size());
    for (const auto& [key_code, value_code] : entries_) {
        const Value key = key_code->evaluate(context);
        require_hashable(key);
        dict->set(key, value_code->evaluate(context));
    }
    return dict;
}

Value Conditional::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    if (is_true(test_->evaluate(context))) return then_->evaluate(context);
    if (otherwise_) return otherwise_->evaluate(context);
    return undefined_because(context.arena,
                             "the inline if-expression evaluated to false and no else section was defined.");
}

void Conditional::print(Context& context) const {
    const Context::Nesting nesting(context);
    if (is_true(test_->evaluate(context))) {
        then_->print(context);
    } else if (otherwise_) {
        otherwise_->print(context);
    }
}

Value Logical::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    const Value left = left_->evaluate(context);
    return is_true(left) == is_and_ ? right_->evaluate(context) : left;
}

Value Not::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    return !is_true(operand_->evaluate(context));
}

Value Sign::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    const Value value = operand_->evaluate(context);
    require_defined(value);
    if (!value.is_number()) {
        type_error(std::string("bad operand type for unary ") + (negative_ ? "-" : "+") + ": '" + value.type_name() +
                   "'");
    }
    if (negative_) return negate(value);
    return value.is_float() ? value : Value(value.integer());
}

Value Binary::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    const Value left = left_->evaluate(context);
    return apply(context, op_, left, right_->evaluate(context));
}

Value Sum::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    Value sum = parts_[0]->evaluate(context);
    std::size_t i = 1;
    if (sum.is_text()) {
        TextBuilder builder(context.arena);
        builder.append(sum.text());
        for (; i < parts_.size(); ++i) {
            const Value part = parts_[i]->evaluate(context);
            // Anything else is an error here, which apply() words.
            if (!part.is_text()) return apply(context, BinaryOperator::add, builder.take(), part);
            builder.append(part.text());
        }
        context.charge_bytes(builder.size());
        return builder.take();
    }
    for (; i < parts_.size(); ++i) sum = apply(context, BinaryOperator::add, sum, parts_[i]->evaluate(context));
    return sum;
}

void Sum::print(Context& context) const {
    if (context.autoescape) return context.emit(evaluate(context));
    const Context::Nesting nesting(context);
    Value sum = parts_[0]->evaluate(context);
    const bool is_text = sum.is_text();
    if (is_text) context.emit(sum.text());
    for (std::size_t i = 1; i < parts_.size(); ++i) {
        const Value part = parts_[i]->evaluate(context);
        if (is_text && part.is_text()) {
            context.emit(part.text());
        } else {
            sum = apply(context, BinaryOperator::add, sum, part);
        }
    }
    if (!is_text) context.emit(sum);
}

Value Concatenation::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    TextBuilder builder(context.arena);
    for (const auto& part : parts_) builder.append(to_text(context.arena, part->evaluate(context)));
    context.charge_bytes(builder.size());
    return builder.take();
}

void Concatenation::print(Context& context) const {
    if (context.autoescape) return context.emit(evaluate(context));
    const Context::Nesting nesting(context);
    for (const auto& part : parts_) context.emit(part->evaluate(context));
}

Value Compare::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    Value left = first_->evaluate(context);
    for (const auto& [comparison, operand] : rest_) {
        const Value right = operand->evaluate(context);
        if (!compare(context, comparison, left, right)) return false;
        left = right;
    }
    return true;
}

Value Attribute::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    return attribute_of(context, owner_->evaluate(context), name_, *member_);
}

Value Attribute::call(Context& context, const CallArguments& arguments, const Keyword* added) const {
    const Value owner = owner_->evaluate(context);
    if (const Method method = member_->of(owner)) return method(context, owner, arguments.evaluate_all(context, added));
    const Value callee = attribute_of(context, owner, name_, *member_);
    return jinja::call(context, callee, arguments.evaluate_all(context, added));
}

Value Item::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    const Value owner = owner_->evaluate(context);
    if (constant_ == nullptr) return item_of(context, owner, key_->evaluate(context));
    if (owner.is_dict() && constant_->is_text()) {
        if (const Value* found = owner.dict().find(constant_->bytes())) return *found;
    }
    return item_of(context, owner, *constant_);
}

Value SliceItem::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    const Value owner = owner_->evaluate(context);
    const auto part = [&](const ExpressionPtr& code) { return code ? code->evaluate(context) : Value(); };
    const Value start = part(start_);
    const Value stop = part(stop_);
    return slice_of(context, owner, start, stop, part(step_));
}

Value Call::call_with(Context& context, const Keyword* added) const {
    const Context::Nesting nesting(context);
    if (attribute_ != nullptr) return attribute_->call(context, arguments_, added);
    const Value callee = callee_->evaluate(context);
    return call(context, callee, arguments_.evaluate_all(context, added));
}

Value FilterCall::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    return run(context, subject_->evaluate(context));
}

Value FilterCall::apply(Context& context, const Value& block) const {
    const Context::Nesting nesting(context);
    if (!subject_) return run(context, block);
    return run(context, static_cast<const FilterCall&>(*subject_).apply(context, block));
}

Value FilterCall::run(Context& context, const Value& subject) const {
    if (filter_ == nullptr) {
        throw Failure("TemplateRuntimeError", "No filter named '" + std::string(name_) + "' found.");
    }
    return filter_(context, subject, arguments_.evaluate(context));
}

Value TestCall::evaluate(Context& context) const {
    const Context::Nesting nesting(context);
    const Value subject = subject_->evaluate(context);
    if (test_ == nullptr) {
        throw Failure("TemplateRuntimeError", "No test named '" + std::string(name_) + "' found.");
    }
    return test_(context, subject, arguments_.evaluate(context));
}

}  // namespace attune::jinja
