#pragma once

#include "engine/text/jinja/value.hpp"

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>

namespace attune::jinja {

/// A name of the template, numbered once by the parser; the number is its slot in the outermost frame.
using Symbol = int;

/// The names of one block, loop or macro call, each in the slot that the parser gave it.
struct Frame {
    Frame* parent = nullptr;  ///< of the surrounding block, as the template is written
    std::span<Value> slots;   ///< unset until assigned

    void clear() {
        for (Value& slot : slots) slot = Value::unset();
    }
};

/// What a template may use up. One step is about one node of the template, or some bytes of text made. Memory is
/// limited by the arena.
struct Limits {
    std::int64_t steps = 2'000'000;
    std::size_t output_bytes = std::size_t{64} << 20;
    int depth = 1000;
    std::int64_t range = 100'000;
};

enum class Flow : std::uint8_t { next, break_loop, continue_loop };

/// One rendering: frames, output and what is left of the limits.
class Context {
public:
    /// `root` has a slot for each symbol.
    Context(Arena& memory, const Limits& limits, Frame& root_frame, const std::tm& now)
        : arena(memory),
          root(root_frame),
          frame(&root_frame),
          output(nullptr),
          limits_(limits),
          now_(now),
          steps_(limits.steps) {}
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    /// Counts work; throws when the template has had its share.
    void charge(std::int64_t steps = 1) {
        steps_ -= steps;
        if (steps_ < 0) out_of_steps();
    }
    /// For text or lists about to be made.
    void charge_bytes(std::size_t bytes) {
        if (bytes > limits_.output_bytes) too_large();
        charge(static_cast<std::int64_t>(bytes / kBytesPerStep));
    }
    /// For work on each character of a text.
    void charge_characters(std::size_t bytes) { charge(static_cast<std::int64_t>(bytes / 8)); }
    void emit(const Value& value) {
        if (value.is_text() && !autoescape) {
            emit(value.text());
        } else {
            emit_shown(value);
        }
    }
    void emit(const Text& text) {
        const bool fits = output->size() + text.size() <= limits_.output_bytes;
        charge_bytes(fits ? text.size() : limits_.output_bytes + 1);
        output->append(text);
    }
    Frame* make_frame(Frame* parent, std::size_t slots);

    const Limits& limits() const { return limits_; }
    const std::tm& now() const { return now_; }

    Arena& arena;
    Frame& root;
    Frame* frame;
    TextBuilder* output;
    bool autoescape = false;

    /// Counts a node's step and nesting, so that no template can go on for ever or exhaust the stack.
    class Nesting {
    public:
        explicit Nesting(Context& context) : context_(context) {
            context.charge();
            if (++context_.depth_ > context_.limits_.depth) context_.too_deep();
        }
        ~Nesting() { --context_.depth_; }
        Nesting(const Nesting&) = delete;
        Nesting& operator=(const Nesting&) = delete;

    private:
        Context& context_;
    };

    /// Another frame for as long as it lives.
    class InFrame {
    public:
        InFrame(Context& context, Frame* frame) : context_(context), outer_(context.frame) { context.frame = frame; }
        /// A new one with `slots` names inside the current one.
        InFrame(Context& context, std::size_t slots) : InFrame(context, context.make_frame(context.frame, slots)) {}
        ~InFrame() { context_.frame = outer_; }
        InFrame(const InFrame&) = delete;
        InFrame& operator=(const InFrame&) = delete;

    private:
        Context& context_;
        Frame* outer_;
    };

    /// Sends output elsewhere for as long as it lives.
    class Capture {
    public:
        explicit Capture(Context& context) : context_(context), outer_(context.output), builder_(context.arena) {
            context.output = &builder_;
        }
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
    /// Copying and scanning this much costs about as much as one node.
    static constexpr std::size_t kBytesPerStep = 256;

    void emit_shown(const Value& value);
    [[noreturn]] static void out_of_steps();
    [[noreturn]] static void too_deep();
    [[noreturn]] static void too_large();

    const Limits limits_;
    const std::tm& now_;
    std::int64_t steps_;
    int depth_ = 0;
};

}  // namespace attune::jinja
