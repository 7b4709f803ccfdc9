#include "engine/text/jinja/statements.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/loop.hpp"
#include "engine/text/jinja/macro.hpp"
#include "engine/text/jinja/operations.hpp"

namespace attune::jinja {

Flow execute_all(const Body& body, Context& context) {
    for (const StatementPtr& statement : body) {
        const Flow flow = statement->execute(context);
        if (flow != Flow::next) return flow;
    }
    return Flow::next;
}

void TupleTarget::assign(Context& context, const Value& value) const {
    const auto items = items_of(context, value);
    if (items.size() > parts_.size()) {
        throw Failure("ValueError", "too many values to unpack (expected " + std::to_string(parts_.size()) + ")");
    }
    if (items.size() < parts_.size()) {
        throw Failure("ValueError", "not enough values to unpack (expected " + std::to_string(parts_.size()) +
                                        ", got " + std::to_string(items.size()) + ")");
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i]->assign(context, items[i]);
}

void NamespaceTarget::assign(Context& context, const Value& value) const {
    const Value& owner = reference_.find(context);
    auto* space = owner.is_object() ? dynamic_cast<Namespace*>(&owner.object()) : nullptr;
    if (space == nullptr) {
        throw Failure("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    }
    Namespace::check_name(attribute_);
    space->attributes.set(Value(attribute_), value);
}

Flow Data::execute(Context& context) const {
    context.charge();
    context.emit(Text(text_));
    return Flow::next;
}

Flow Print::execute(Context& context) const {
    const Context::Nesting nesting(context);
    value_->print(context);
    return Flow::next;
}

Flow If::execute(Context& context) const {
    const Context::Nesting nesting(context);
    for (const Branch& branch : branches_) {
        if (!branch.test || is_true(branch.test->evaluate(context))) return execute_all(branch.body, context);
    }
    return Flow::next;
}

Flow For::execute(Context& context) const {
    const Context::Nesting nesting(context);
    return iterate(context, parts_.iterable->evaluate(context), 0);
}

std::span<const Value> For::passing(Context& context, std::span<const Value> items) const {
    const Context::InFrame inside(context, parts_.test_slots);
    Values kept(context.arena);
    for (const Value& item : items) {
        context.charge();
        if (parts_.keeps_frames) context.frame = context.make_frame(context.frame->parent, parts_.test_slots);
        context.frame->clear();
        parts_.target->assign(context, item);
        if (is_true(parts_.test->evaluate(context))) kept.push_back(item);
    }
    return kept.view();
}

Flow For::iterate(Context& context, const Value& iterable, int depth) const {
    std::span<const Value> items = items_of(context, iterable);
    if (parts_.test) items = passing(context, items);
    if (items.empty()) {
        if (parts_.otherwise.empty()) return Flow::next;
        const Context::InFrame inside(context, parts_.otherwise_slots);
        return execute_all(parts_.otherwise, context);
    }
    Frame* outer = context.frame;
    Loop* loop = context.arena.make<Loop>(*this, items, depth, outer);
    const Context::InFrame inside(context, parts_.body_slots);
    for (std::size_t i = 0; i < items.size(); ++i) {
        context.charge();
        loop->at(i);
        // What a turn sets is gone in the next one; what a macro saw stays as it was.
        if (parts_.keeps_frames && i > 0) context.frame = context.make_frame(outer, parts_.body_slots);
        context.frame->clear();
        context.frame->slots[static_cast<std::size_t>(parts_.loop)] = loop;
        parts_.target->assign(context, items[i]);
        if (execute_all(parts_.body, context) == Flow::break_loop) break;
    }
    return Flow::next;
}

Flow Set::execute(Context& context) const {
    const Context::Nesting nesting(context);
    target_->assign(context, value_->evaluate(context));
    return Flow::next;
}

Flow SetBlock::execute(Context& context) const {
    const Context::Nesting nesting(context);
    Value value;
    {
        const Context::InFrame inside(context, slots_);
        Context::Capture capture(context);
        const Flow flow = execute_all(body_, context);
        if (flow != Flow::next) return flow;
        value = capture.take().with_markup(context.autoescape);
    }
    if (filter_) value = filter_->apply(context, value);
    target_->assign(context, value);
    return Flow::next;
}

Flow With::execute(Context& context) const {
    const Context::Nesting nesting(context);
    Values values(context.arena);
    for (const auto& [target, code] : bindings_) values.push_back(code->evaluate(context));
    const Context::InFrame inside(context, slots_);
    for (std::size_t i = 0; i < bindings_.size(); ++i) bindings_[i].first->assign(context, values[i]);
    return execute_all(body_, context);
}

Flow FilterBlock::execute(Context& context) const {
    const Context::Nesting nesting(context);
    Value value;
    {
        const Context::InFrame inside(context, slots_);
        Context::Capture capture(context);
        const Flow flow = execute_all(body_, context);
        if (flow != Flow::next) return flow;
        value = capture.take();
    }
    context.emit(filter_->apply(context, value));
    return Flow::next;
}

Flow MacroDefinition::execute(Context& context) const {
    context.charge();
    context.frame->slots[static_cast<std::size_t>(slot_)] = context.arena.make<Macro>(*code_, context.frame);
    return Flow::next;
}

Flow CallBlock::execute(Context& context) const {
    const Context::Nesting nesting(context);
    const Keyword caller{"caller", context.arena.make<Macro>(*caller_, context.frame)};
    context.emit(call_->call_with(context, &caller));
    return Flow::next;
}

Flow Block::execute(Context& context) const {
    const Context::Nesting nesting(context);
    Frame* surroundings = sees_surroundings_ ? context.frame : &context.root;
    const Context::InFrame inside(context, context.make_frame(surroundings, slots_));
    return execute_all(body_, context);
}

Flow Autoescape::execute(Context& context) const {
    const Context::Nesting nesting(context);
    const bool outer = context.autoescape;
    context.autoescape = is_true(on_->evaluate(context));
    const Context::InFrame inside(context, slots_);
    const Flow flow = execute_all(body_, context);
    context.autoescape = outer;
    return flow;
}

Flow NoLoader::execute(Context&) const { type_error("no loader for this environment specified"); }

}  // namespace attune::jinja
