#pragma once

#include "engine/text/jinja/statements.hpp"

#include <optional>

namespace attune::jinja {

/// `loop` inside a for loop.
class Loop final : public Object {
public:
    Loop(const For& loop, std::span<const Value> items, int depth, Frame* outer)
        : loop_(loop), items_(items), depth_(depth), outer_(outer) {}

    void at(std::size_t index) { index_ = index; }
    std::string_view type_name() const override { return "LoopContext"; }
    std::string repr() const override {
        return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_.size()) + ">";
    }
    std::optional<Value> attribute(Arena& arena, std::string_view name, const Member& known) override;
    bool is_callable() const override { return true; }
    /// The loop again, one level deeper, over other items.
    Value call(Context& context, const Arguments& arguments) override;

private:
    Value neighbour(Arena& arena, std::int64_t at, std::string_view none) const;
    static Value cycle(Context& context, const Value& self, const Arguments& arguments);
    static Value changed(Context& context, const Value& self, const Arguments& arguments);

    const For& loop_;
    std::span<const Value> items_;
    int depth_;
    Frame* outer_;
    std::size_t index_ = 0;
    Value last_changed_ = Value::unset();
};

}  // namespace attune::jinja
