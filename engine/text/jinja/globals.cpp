#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

#include <array>
#include <utility>

namespace attune::jinja {
namespace {

Value range(Context& context, const Value&, const Arguments& arguments) {
    const Bound bound("range", arguments, {"", "", ""}, 1);
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
    return context.arena.make<const Range>(made);
}

/// dict(mapping or pairs, key=value...)
Dict* make_dict(Context& context, const Arguments& arguments) {
    if (arguments.positional.size() > 1) type_error("dict expected at most 1 argument");
    const bool copies = !arguments.positional.empty() && arguments.positional[0].is_dict();
    Dict* dict = copies ? context.arena.make<Dict>(context.arena, arguments.positional[0].dict())
                        : context.arena.make<Dict>(context.arena);
    if (!copies && !arguments.positional.empty()) {
        for (const Value& pair : items_of(context, arguments.positional[0])) {
            const auto parts = items_of(context, pair);
            if (parts.size() != 2) {
                throw Failure("ValueError", "dictionary update sequence element has the wrong length");
            }
            require_hashable(parts[0]);
            dict->set(parts[0], parts[1]);
        }
    }
    for (const auto& [name, value] : arguments.keyword) dict->set(Value(name), value);
    context.charge(static_cast<std::int64_t>(dict->entries().size()));
    return dict;
}

Value dict(Context& context, const Value&, const Arguments& arguments) { return make_dict(context, arguments); }

Value make_namespace(Context& context, const Value&, const Arguments& arguments) {
    auto* space = context.arena.make<Namespace>(*make_dict(context, arguments));
    for (const auto& entry : space->attributes.entries()) {
        if (entry.key.is_text()) Namespace::check_name(entry.key.bytes());
    }
    return space;
}

Value raise_exception(Context& context, const Value&, const Arguments& arguments) {
    const Bound bound("raise_exception", arguments, {"message"}, 1);
    throw Failure("TemplateError", std::string(to_text(context.arena, bound[0]).bytes()));
}

Value strftime_now(Context& context, const Value&, const Arguments& arguments) {
    const Bound bound("strftime_now", arguments, {"format"}, 1);
    const Text& format = bound.text(0);
    if (format.size() > 1024) throw Failure("ValueError", "strftime_now: the format is too long");
    if (format.empty()) return "";
    std::array<char, 16384> buffer;  // left as it is: setting it to zero costs more than the call
    const std::string pattern(format.bytes());
    const std::size_t bytes = std::strftime(buffer.data(), buffer.size(), pattern.c_str(), &context.now());
    return Text(context.arena.copy({buffer.data(), bytes}), format.has_literal());
}

/// joiner(sep): nothing at first, then the separator.
class Joiner final : public Object {
public:
    explicit Joiner(const Value& separator) : separator_(separator) {}
    std::string_view type_name() const override { return "Joiner"; }
    bool is_callable() const override { return true; }
    Value call(Context&, const Arguments&) override { return std::exchange(used_, true) ? separator_ : Value(""); }

private:
    Value separator_;
    bool used_ = false;
};

class Cycler final : public Object {
public:
    explicit Cycler(std::span<const Value> items) : items_(items) {}
    std::string_view type_name() const override { return "Cycler"; }
    std::optional<Value> attribute(Arena& arena, std::string_view name, const Member&) override {
        if (name == "current") return items_[at_];
        if (name == "next") return arena.make<Function>("next", &Cycler::next, Value(this));
        if (name == "reset") return arena.make<Function>("reset", &Cycler::reset, Value(this));
        return std::nullopt;
    }

private:
    static Value next(Context&, const Value& self, const Arguments&) {
        auto& cycler = static_cast<Cycler&>(self.object());
        const Value value = cycler.items_[cycler.at_];
        cycler.at_ = (cycler.at_ + 1) % cycler.items_.size();
        return value;
    }
    static Value reset(Context&, const Value& self, const Arguments&) {
        static_cast<Cycler&>(self.object()).at_ = 0;
        return {};
    }

    std::span<const Value> items_;
    std::size_t at_ = 0;
};

Value joiner(Context& context, const Value&, const Arguments& arguments) {
    const Bound bound("joiner", arguments, {"sep"});
    return context.arena.make<Joiner>(bound.or_value(0, ", "));
}

Value cycler(Context& context, const Value&, const Arguments& arguments) {
    if (arguments.positional.empty()) throw Failure("RuntimeError", "at least one item has to be provided");
    return context.arena.make<Cycler>(arguments.positional);
}

constexpr std::array kGlobals = {
    Global{"range", range},
    Global{"dict", dict},
    Global{"namespace", make_namespace},
    Global{"raise_exception", raise_exception},
    Global{"strftime_now", strftime_now},
    Global{"joiner", joiner},
    Global{"cycler", cycler},
};

}  // namespace

std::span<const Global> globals() { return kGlobals; }

}  // namespace attune::jinja
