#pragma once

#include "engine/text/jinja/value.hpp"

#include <cstdint>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

namespace attune::jinja {

/// A name of the template, numbered once by the parser.
using Symbol = int;

/// Names of one block, loop or macro call. Shared, because a macro may outlive the block it was made in.
struct Scope {
    std::vector<std::pair<Symbol, Value>> names;
    std::shared_ptr<Scope> parent;

    const Value* find(Symbol name) const;
    void set(Symbol name, Value value);
};

class Namespace;

/// What a template may use up. One step is about one node of the template, or some bytes of text made.
struct Limits {
    std::int64_t steps = 2'000'000;
    std::size_t output_bytes = std::size_t{64} << 20;
    int depth = 1000;
    std::int64_t range = 100'000;
};

enum class Flow : std::uint8_t { next, break_loop, continue_loop };

/// One rendering: scopes, output and what is left of the limits.
class Context {
public:
    Context(const Limits& limits, std::shared_ptr<Scope> root, std::tm now);

    /// Counts work; throws when the template has had its share.
    void charge(std::int64_t steps = 1) {
        steps_ -= steps;
        if (steps_ < 0) out_of_steps();
    }
    /// For text or lists about to be made.
    void charge_bytes(std::size_t bytes);
    /// For work on each character of a text.
    void charge_characters(std::size_t bytes) { charge(static_cast<std::int64_t>(bytes / 8)); }
    void emit(const Value& value);
    void emit(const Text& text);

    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    /// A macro or loop that keeps its scope, and a namespace, can be held by what they hold: such rings are cut when
    /// the rendering ends.
    void will_cut(const std::shared_ptr<Scope>& scope);
    void will_cut(const std::shared_ptr<Namespace>& space);

    const Limits& limits() const { return limits_; }
    const std::tm& now() const { return now_; }
    const std::shared_ptr<Scope>& root() const { return root_; }

    std::shared_ptr<Scope> scope;
    TextBuilder* output = nullptr;
    bool autoescape = false;

    /// Counts nesting of nodes, so that no template can exhaust the stack.
    class Nesting {
    public:
        explicit Nesting(Context& context) : context_(context) {
            if (++context_.depth_ > context_.limits_.depth) context_.too_deep();
        }
        ~Nesting() { --context_.depth_; }
        Nesting(const Nesting&) = delete;
        Nesting& operator=(const Nesting&) = delete;

    private:
        Context& context_;
    };

    /// Opens a scope for as long as it lives.
    class Inner {
    public:
        explicit Inner(Context& context) : Inner(context, context.scope) {}
        Inner(Context& context, std::shared_ptr<Scope> parent) : context_(context), outer_(context.scope) {
            context.scope = std::make_shared<Scope>();
            context.scope->parent = std::move(parent);
        }
        ~Inner() { context_.scope = std::move(outer_); }
        Inner(const Inner&) = delete;
        Inner& operator=(const Inner&) = delete;

    private:
        Context& context_;
        std::shared_ptr<Scope> outer_;
    };

    /// Sends output elsewhere for as long as it lives.
    class Capture {
    public:
        explicit Capture(Context& context) : context_(context), outer_(context.output) { context.output = &builder_; }
        ~Capture() { context_.output = outer_; }
        Capture(const Capture&) = delete;
        Capture& operator=(const Capture&) = delete;
        Text take() { return builder_.take(); }

    private:
        Context& context_;
        TextBuilder* outer_;
        TextBuilder builder_;
    };

private:
    [[noreturn]] void out_of_steps() const;
    [[noreturn]] void too_deep() const;

    Limits limits_;
    std::int64_t steps_;
    int depth_ = 0;
    std::shared_ptr<Scope> root_;
    std::tm now_;
    std::vector<std::weak_ptr<Scope>> rings_;
    std::vector<std::weak_ptr<Namespace>> spaces_;
};

}  // namespace attune::jinja
