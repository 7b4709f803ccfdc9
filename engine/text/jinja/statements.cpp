#include "engine/text/jinja/statements.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

#include <algorithm>

namespace attune::jinja {
namespace {

/// A macro, or the body of a call block, with the scope it was written in.
class Macro final : public Object {
public:
    Macro(std::shared_ptr<const MacroCode> code, std::shared_ptr<Scope> closure)
        : code_(std::move(code)), closure_(std::move(closure)) {}

    std::string type_name() const override { return "Macro"; }
    bool is_callable() const override { return true; }
    std::string repr() const override { return "<Macro '" + code_->name + "'>"; }

    std::unique_ptr<Value> attribute(std::string_view name) override {
        if (name == "name") return std::make_unique<Value>(code_->name);
        if (name == "catch_kwargs") return std::make_unique<Value>(code_->catches_keywords);
        if (name == "catch_varargs") return std::make_unique<Value>(code_->catches_positional);
        if (name == "caller") return std::make_unique<Value>(code_->uses_caller);
        if (name != "arguments") return nullptr;
        List names;
        names.tuple = true;
        for (const Parameter& parameter : code_->parameters) names.items.emplace_back(parameter.name);
        return std::make_unique<Value>(std::move(names));
    }

    Value call(Context& context, Arguments arguments) override {
        const Context::Nesting nesting(context);
        const Context::Inner inner(context, closure_);
        bind(context, std::move(arguments));
        Context::Capture capture(context);
        execute_all(code_->body, context);
        Text text = capture.take();
        text.markup = context.autoescape;
        return text;
    }

private:
    void bind(Context& context, Arguments arguments) {
        Scope& scope = *context.scope;
        auto& keyword = arguments.keyword;
        const auto take = [&](std::string_view name) -> std::optional<Value> {
            const auto found = std::find_if(keyword.begin(), keyword.end(), [&](auto& k) { return k.first == name; });
            if (found == keyword.end()) return std::nullopt;
            Value value = std::move(found->second);
            keyword.erase(found);
            return value;
        };
        std::vector<std::optional<Value>> given;
        for (std::size_t i = 0; i < code_->parameters.size(); ++i) {
            if (i < arguments.positional.size()) {
                given.emplace_back(arguments.positional[i]);
            } else {
                given.push_back(take(code_->parameters[i].name));
            }
        }
        const bool has_caller_parameter = std::any_of(code_->parameters.begin(), code_->parameters.end(),
                                                      [](const Parameter& p) { return p.name == "caller"; });
        if (code_->uses_caller && !has_caller_parameter) {
            Undefined none;
            none.hint = "No caller defined";
            scope.set(code_->caller, take("caller").value_or(Value(none)));
        }
        if (code_->catches_keywords) {
            Dict rest;
            for (auto& [name, value] : keyword) rest.set(Value(name), std::move(value));
            scope.set(code_->kwargs, std::move(rest));
        } else if (!keyword.empty()) {
            type_error("macro '" + code_->name + "' takes no keyword argument '" + keyword[0].first + "'");
        }
        if (code_->catches_positional) {
            List rest;
            rest.tuple = true;
            for (std::size_t i = code_->parameters.size(); i < arguments.positional.size(); ++i) {
                rest.items.push_back(arguments.positional[i]);
            }
            scope.set(code_->varargs, std::move(rest));
        } else if (arguments.positional.size() > code_->parameters.size()) {
            type_error("macro '" + code_->name + "' takes not more than " + std::to_string(code_->parameters.size()) +
                       " argument(s)");
        }
        // Defaults are computed in order and see the parameters before them.
        for (std::size_t i = 0; i < code_->parameters.size(); ++i) {
            const Parameter& parameter = code_->parameters[i];
            if (given[i]) {
                scope.set(parameter.symbol, std::move(*given[i]));
            } else if (parameter.fallback) {
                scope.set(parameter.symbol, parameter.fallback->evaluate(context));
            } else {
                Undefined missing;
                missing.hint = "parameter '" + parameter.name + "' was not provided";
                scope.set(parameter.symbol, missing);
            }
        }
    }

    std::shared_ptr<const MacroCode> code_;
    std::shared_ptr<Scope> closure_;
};

/// `loop` inside a for loop.
class Loop final : public Object, public std::enable_shared_from_this<Loop> {
public:
    Loop(const For* loop, Value::ListPtr items, int depth, std::shared_ptr<Scope> outer)
        : loop_(loop), items_(std::move(items)), depth_(depth), outer_(std::move(outer)) {}

    void at(std::size_t index) { index_ = index; }
    std::string type_name() const override { return "LoopContext"; }
    std::string repr() const override {
        return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_->items.size()) + ">";
    }

    std::unique_ptr<Value> attribute(std::string_view name) override {
        const auto index = static_cast<std::int64_t>(index_);
        const auto length = static_cast<std::int64_t>(items_->items.size());
        const auto made = [](Value value) { return std::make_unique<Value>(std::move(value)); };
        if (name == "index") return made(index + 1);
        if (name == "index0") return made(index);
        if (name == "revindex") return made(length - index);
        if (name == "revindex0") return made(length - index - 1);
        if (name == "first") return made(index == 0);
        if (name == "last") return made(index + 1 == length);
        if (name == "length") return made(length);
        if (name == "depth") return made(depth_ + 1);
        if (name == "depth0") return made(depth_);
        if (name == "previtem") return made(neighbour(index - 1, "there is no previous item"));
        if (name == "nextitem") return made(neighbour(index + 1, "there is no next item"));
        if (name == "cycle") return made(method("cycle", &Loop::cycle));
        if (name == "changed") return made(method("changed", &Loop::changed));
        return nullptr;
    }

    bool is_callable() const override { return true; }
    /// The loop again, one level deeper, over other items.
    Value call(Context& context, Arguments arguments) override {
        if (!is_recursive_) type_error("The loop must have the 'recursive' marker to be called recursively.");
        if (arguments.positional.size() != 1) type_error("loop() takes one argument");
        const Context::Nesting nesting(context);
        const Context::Inner inner(context, outer_);
        Context::Capture capture(context);
        loop_->iterate(context, arguments.positional[0], depth_ + 1);
        return capture.take();
    }
    void set_recursive(bool recursive) { is_recursive_ = recursive; }

private:
    Value neighbour(std::int64_t at, const char* none) const {
        if (at >= 0 && at < static_cast<std::int64_t>(items_->items.size())) {
            return items_->items[static_cast<std::size_t>(at)];
        }
        Undefined undefined;
        undefined.hint = none;
        return undefined;
    }
    Value method(const char* name, Function::Body body) {
        return Value(
            Value::ObjectPtr(std::make_shared<Function>(name, body, Value(Value::ObjectPtr(shared_from_this())))));
    }
    static Value cycle(Context&, const Value& self, Arguments arguments);
    static Value changed(Context&, const Value& self, Arguments arguments);

    const For* loop_;
    Value::ListPtr items_;
    int depth_;
    std::shared_ptr<Scope> outer_;
    std::size_t index_ = 0;
    bool is_recursive_ = false;
    std::optional<Value> last_changed_;
};

}  // namespace

Flow execute_all(const Body& body, Context& context) {
    for (const StatementPtr& statement : body) {
        const Flow flow = statement->execute(context);
        if (flow != Flow::next) return flow;
    }
    return Flow::next;
}

void TupleTarget::assign(Context& context, Value value) const {
    const auto items = items_of(context, value);
    if (items->items.size() > parts_.size()) {
        throw Failure("ValueError", "too many values to unpack (expected " + std::to_string(parts_.size()) + ")");
    }
    if (items->items.size() < parts_.size()) {
        throw Failure("ValueError", "not enough values to unpack (expected " + std::to_string(parts_.size()) +
                                        ", got " + std::to_string(items->items.size()) + ")");
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i]->assign(context, items->items[i]);
}

void NamespaceTarget::assign(Context& context, Value value) const {
    const Value* owner = context.scope->find(symbol_);
    auto* space = owner != nullptr && owner->is_object() ? dynamic_cast<Namespace*>(&owner->object()) : nullptr;
    if (space == nullptr) {
        throw Failure("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    }
    Namespace::check_name(attribute_);
    space->attributes.set(Value(attribute_), std::move(value));
}

Flow Data::run(Context& context) const {
    context.emit(text_);
    return Flow::next;
}

Flow Print::run(Context& context) const {
    context.emit(value_->evaluate(context));
    return Flow::next;
}

Flow If::run(Context& context) const {
    for (const Branch& branch : branches_) {
        if (!branch.test || is_true(branch.test->evaluate(context))) return execute_all(branch.body, context);
    }
    return Flow::next;
}

Flow For::run(Context& context) const {
    const Value iterable = parts_.iterable->evaluate(context);
    return iterate(context, iterable, 0);
}

Flow For::iterate(Context& context, const Value& iterable, int depth) const {
    Value::ListPtr items = items_of(context, iterable);
    const std::shared_ptr<Scope> outer = context.scope;
    if (parts_.test) {
        List kept;
        for (const Value& item : items->items) {
            const Context::Inner inner(context, outer);
            parts_.target->assign(context, item);
            if (is_true(parts_.test->evaluate(context))) kept.items.push_back(item);
        }
        items = std::make_shared<const List>(std::move(kept));
    }
    if (items->items.empty()) {
        const Context::Inner inner(context, outer);
        return execute_all(parts_.otherwise, context);
    }
    context.will_cut(outer);
    const auto loop = std::make_shared<Loop>(this, items, depth, outer);
    loop->set_recursive(parts_.recursive);
    for (std::size_t i = 0; i < items->items.size(); ++i) {
        context.charge();
        loop->at(i);
        // A scope for each turn: what a turn sets is gone in the next one.
        const Context::Inner inner(context, outer);
        context.scope->names.reserve(4);
        context.scope->names.emplace_back(parts_.loop, Value(Value::ObjectPtr(loop)));
        parts_.target->assign(context, items->items[i]);
        if (execute_all(parts_.body, context) == Flow::break_loop) break;
    }
    return Flow::next;
}

Value Loop::cycle(Context&, const Value& self, Arguments arguments) {
    const auto& choices = arguments.positional;
    if (choices.empty()) type_error("no items for cycling given");
    return choices[dynamic_cast<Loop&>(self.object()).index_ % choices.size()];
}

Value Loop::changed(Context&, const Value& self, Arguments arguments) {
    auto& loop = dynamic_cast<Loop&>(self.object());
    List now;
    now.tuple = true;
    now.items = std::move(arguments.positional);
    const Value value(std::move(now));
    if (loop.last_changed_ && equals(*loop.last_changed_, value)) return false;
    loop.last_changed_ = value;
    return true;
}

Flow Set::run(Context& context) const {
    target_->assign(context, value_->evaluate(context));
    return Flow::next;
}

Flow SetBlock::run(Context& context) const {
    Value value;
    {
        const Context::Inner inner(context);
        Context::Capture capture(context);
        const Flow flow = execute_all(body_, context);
        if (flow != Flow::next) return flow;
        Text text = capture.take();
        text.markup = context.autoescape;
        value = Value(std::move(text));
    }
    if (filter_) value = filter_->apply(context, value);
    target_->assign(context, std::move(value));
    return Flow::next;
}

Flow With::run(Context& context) const {
    std::vector<Value> values;
    values.reserve(bindings_.size());
    for (const auto& [target, code] : bindings_) values.push_back(code->evaluate(context));
    const Context::Inner inner(context);
    for (std::size_t i = 0; i < bindings_.size(); ++i) bindings_[i].first->assign(context, std::move(values[i]));
    return execute_all(body_, context);
}

Flow FilterBlock::run(Context& context) const {
    Value value;
    {
        const Context::Inner inner(context);
        Context::Capture capture(context);
        const Flow flow = execute_all(body_, context);
        if (flow != Flow::next) return flow;
        value = Value(capture.take());
    }
    context.emit(filter_->apply(context, value));
    return Flow::next;
}

Flow MacroDefinition::run(Context& context) const {
    context.will_cut(context.scope);
    context.scope->set(symbol_, Value(Value::ObjectPtr(std::make_shared<Macro>(code_, context.scope))));
    return Flow::next;
}

Flow CallBlock::run(Context& context) const {
    context.will_cut(context.scope);
    Value caller(Value::ObjectPtr(std::make_shared<Macro>(caller_, context.scope)));
    context.emit(call_->call_with(context, std::move(caller)));
    return Flow::next;
}

Flow Block::run(Context& context) const {
    const Context::Inner inner(context, sees_surroundings_ ? context.scope : context.root());
    return execute_all(body_, context);
}

Flow Autoescape::run(Context& context) const {
    const bool outer = context.autoescape;
    context.autoescape = is_true(on_->evaluate(context));
    const Context::Inner inner(context);
    const Flow flow = execute_all(body_, context);
    context.autoescape = outer;
    return flow;
}

Flow NoLoader::run(Context&) const { type_error("no loader for this environment specified"); }

}  // namespace attune::jinja
