#include "engine/text/jinja/context.hpp"

#include "engine/text/jinja/error.hpp"

namespace attune::jinja {

Frame* Context::make_frame(Frame* parent, std::size_t slots) {
    auto* values = reinterpret_cast<Value*>(arena.allocate(slots * sizeof(Value)));
    for (std::size_t i = 0; i < slots; ++i) new (values + i) Value(Value::unset());
    return arena.make<Frame>(Frame{parent, {values, slots}});
}

void Context::emit_shown(const Value& value) {
    if (autoescape) {
        const Text text = to_text(arena, value);
        return emit(text.is_markup() ? text : escape_html(arena, text));
    }
    const std::size_t before = output->size();
    append_text(*output, value);
    charge_bytes(output->size() > limits_.output_bytes ? output->size() : output->size() - before);
}

void Context::out_of_steps() { throw Failure("TimeoutError", "the template takes too many steps"); }

void Context::too_deep() { throw Failure("RecursionError", "the template is nested too deeply"); }

void Context::too_large() { throw Failure("OverflowError", "the template makes too large a text"); }

}  // namespace attune::jinja
