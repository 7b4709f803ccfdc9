#pragma once

#include "engine/text/jinja/ast.hpp"

namespace attune::jinja {

/// A macro, or the body of a call block, with the frame it was written in.
class Macro final : public Object {
public:
    Macro(const MacroCode& code, Frame* closure) : code_(code), closure_(closure) {}

    std::string_view type_name() const override { return "Macro"; }
    bool is_callable() const override { return true; }
    std::string repr() const override { return "<Macro '" + std::string(code_.name) + "'>"; }
    std::optional<Value> attribute(Arena& arena, std::string_view name, const Member& known) override;
    Value call(Context& context, const Arguments& arguments) override;

private:
    void bind(Context& context, const Arguments& arguments) const;

    const MacroCode& code_;
    Frame* closure_;
};

}  // namespace attune::jinja
