#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

#include <array>

namespace attune::jinja {
namespace {

Value range(Context& context, const Value&, Arguments arguments) {
    const Bound bound("range", std::move(arguments), {"", "", ""}, 1);
    Range made;
    if (bound.has(1)) {
        made.start = index_of(bound[0]);
        made.stop = index_of(bound[1]);
    } else {
        made.stop = index_of(bound[0]);
    }
    made.step = bound.or_int(2, 1);
    if (made.step == 0) throw Failure("ValueError", "range() arg 3 must not be zero");
    // Far bounds would overflow the arithmetic of length(); they are too big in any case.
    constexpr std::int64_t kFar = std::int64_t{1} << 60;
    const bool far = made.start > kFar || made.start < -kFar || made.stop > kFar || made.stop < -kFar;
    const bool far_step = made.step > kFar || made.step < -kFar;
    if (far_step) made.step = made.step > 0 ? kFar : -kFar;
    if (far || made.length() > context.limits().range) {
        throw Failure("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                                           std::to_string(context.limits().range) + ").");
    }
    return made;
}

/// dict(mapping or pairs, key=value...)
Dict make_dict(Context& context, Arguments arguments) {
    Dict dict;
    if (arguments.positional.size() > 1) type_error("dict expected at most 1 argument");
    if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
        dict = arguments.positional[0].dict();
    } else if (!arguments.positional.empty()) {
        for (const Value& pair : items_of(context, arguments.positional[0])->items) {
            const auto parts = items_of(context, pair);
            if (parts->items.size() != 2) {
                throw Failure("ValueError", "dictionary update sequence element has the wrong length");
            }
            require_hashable(parts->items[0]);
            dict.set(parts->items[0], parts->items[1]);
        }
    }
    for (auto& [name, value] : arguments.keyword) dict.set(Value(name), std::move(value));
    context.charge(static_cast<std::int64_t>(dict.entries.size()));
    return dict;
}

Value dict(Context& context, const Value&, Arguments arguments) { return make_dict(context, std::move(arguments)); }

Value make_namespace(Context& context, const Value&, Arguments arguments) {
    auto space = std::make_shared<Namespace>();
    context.will_cut(space);
    space->attributes = make_dict(context, std::move(arguments));
    for (const auto& entry : space->attributes.entries) {
        if (entry.first.is_text()) Namespace::check_name(entry.first.bytes());
    }
    return Value(Value::ObjectPtr(std::move(space)));
}

Value raise_exception(Context&, const Value&, Arguments arguments) {
    const Bound bound("raise_exception", std::move(arguments), {"message"}, 1);
    throw Failure("TemplateError", to_text(bound[0]).bytes);
}

Value strftime_now(Context& context, const Value&, Arguments arguments) {
    const Bound bound("strftime_now", std::move(arguments), {"format"}, 1);
    const Text& format = bound.text(0);
    if (format.bytes.size() > 1024) throw Failure("ValueError", "strftime_now: the format is too long");
    if (format.bytes.empty()) return "";
    std::array<char, 16384> buffer{};
    const std::size_t bytes = std::strftime(buffer.data(), buffer.size(), format.bytes.c_str(), &context.now());
    return Text(std::string(buffer.data(), bytes), format.has_literal());
}

/// joiner(sep): nothing at first, then the separator.
class Joiner final : public Object {
public:
    explicit Joiner(Value separator) : separator_(std::move(separator)) {}
    std::string type_name() const override { return "Joiner"; }
    bool is_callable() const override { return true; }
    Value call(Context&, Arguments) override {
        if (used_) return separator_;
        used_ = true;
        return "";
    }

private:
    Value separator_;
    bool used_ = false;
};

class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
public:
    explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
    std::string type_name() const override { return "Cycler"; }
    std::unique_ptr<Value> attribute(std::string_view name) override {
        if (name == "current") return std::make_unique<Value>(items_[at_]);
        if (name == "next")
            return method("next", [](Context&, const Value& self, Arguments) -> Value {
                auto& cycler = dynamic_cast<Cycler&>(self.object());
                Value value = cycler.items_[cycler.at_];
                cycler.at_ = (cycler.at_ + 1) % cycler.items_.size();
                return value;
            });
        if (name == "reset")
            return method("reset", [](Context&, const Value& self, Arguments) -> Value {
                dynamic_cast<Cycler&>(self.object()).at_ = 0;
                return {};
            });
        return nullptr;
    }

private:
    std::unique_ptr<Value> method(const char* name, Function::Body body) {
        Value self{Value::ObjectPtr(shared_from_this())};
        return std::make_unique<Value>(Value::ObjectPtr(std::make_shared<Function>(name, body, std::move(self))));
    }
    std::vector<Value> items_;
    std::size_t at_ = 0;
};

Value joiner(Context&, const Value&, Arguments arguments) {
    const Bound bound("joiner", std::move(arguments), {"sep"});
    return Value(Value::ObjectPtr(std::make_shared<Joiner>(bound.or_value(0, ", "))));
}

Value cycler(Context&, const Value&, Arguments arguments) {
    if (arguments.positional.empty()) throw Failure("RuntimeError", "at least one item has to be provided");
    return Value(Value::ObjectPtr(std::make_shared<Cycler>(std::move(arguments.positional))));
}

}  // namespace

std::vector<std::pair<std::string, Value>> make_globals() {
    std::vector<std::pair<std::string, Value>> globals;
    const auto add = [&](const char* name, Function::Body body) {
        globals.emplace_back(name,
                             Value(Value::ObjectPtr(std::make_shared<Function>(name, body, Value(), "function"))));
    };
    add("range", range);
    add("dict", dict);
    add("namespace", make_namespace);
    add("raise_exception", raise_exception);
    add("strftime_now", strftime_now);
    add("joiner", joiner);
    add("cycler", cycler);
    return globals;
}

}  // namespace attune::jinja
