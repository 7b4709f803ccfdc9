#include "engine/text/jinja/loop.hpp"

#include "engine/text/jinja/operations.hpp"

namespace attune::jinja {

std::optional<Value> Loop::attribute(Arena& arena, std::string_view, const Member& known) {
    const auto index = static_cast<std::int64_t>(index_);
    const auto length = static_cast<std::int64_t>(items_.size());
    switch (known.loop) {
        case LoopField::none:
            return std::nullopt;
        case LoopField::index:
            return index + 1;
        case LoopField::index0:
            return index;
        case LoopField::revindex:
            return length - index;
        case LoopField::revindex0:
            return length - index - 1;
        case LoopField::first:
            return index == 0;
        case LoopField::last:
            return index + 1 == length;
        case LoopField::length:
            return length;
        case LoopField::depth:
            return depth_ + 1;
        case LoopField::depth0:
            return depth_;
        case LoopField::previtem:
            return neighbour(arena, index - 1, "there is no previous item");
        case LoopField::nextitem:
            return neighbour(arena, index + 1, "there is no next item");
        case LoopField::cycle:
            return arena.make<Function>("cycle", &Loop::cycle, Value(this));
        case LoopField::changed:
            return arena.make<Function>("changed", &Loop::changed, Value(this));
    }
    return std::nullopt;
}

Value Loop::call(Context& context, const Arguments& arguments) {
    if (!loop_.is_recursive()) type_error("The loop must have the 'recursive' marker to be called recursively.");
    if (arguments.positional.size() != 1) type_error("loop() takes one argument");
    const Context::Nesting nesting(context);
    const Context::InFrame outside(context, outer_);
    Context::Capture capture(context);
    loop_.iterate(context, arguments.positional[0], depth_ + 1);
    return capture.take();
}

Value Loop::neighbour(Arena& arena, std::int64_t at, std::string_view none) const {
    if (at >= 0 && at < static_cast<std::int64_t>(items_.size())) return items_[static_cast<std::size_t>(at)];
    return undefined_because(arena, none);
}

Value Loop::cycle(Context&, const Value& self, const Arguments& arguments) {
    const auto choices = arguments.positional;
    if (choices.empty()) type_error("no items for cycling given");
    return choices[static_cast<Loop&>(self.object()).index_ % choices.size()];
}

Value Loop::changed(Context& context, const Value& self, const Arguments& arguments) {
    auto& loop = static_cast<Loop&>(self.object());
    const Value now = make_tuple(Values(context.arena, arguments.positional));
    if (!loop.last_changed_.is_unset() && equals(loop.last_changed_, now)) return false;
    loop.last_changed_ = now;
    return true;
}

}  // namespace attune::jinja
