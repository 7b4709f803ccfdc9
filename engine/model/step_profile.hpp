#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace attune {

/// What a step does, in the order of a layer.
enum class StepPart : std::uint8_t {
    plan,  ///< which modules act on which rows
    embed,
    norm,
    qkv,
    modules_qkv,  ///< what modules add to projections; biases too
    rotate,       ///< norms of heads, too
    attention,    ///< and the writing of keys and values
    o,
    modules_o,
    gate_up,
    modules_gate_up,
    activation,
    down,
    modules_down,
    states,
    head,
    modules_head,
};
inline constexpr std::size_t kStepParts = static_cast<std::size_t>(StepPart::modules_head) + 1;
inline constexpr std::array<const char*, kStepParts> kStepPartNames{"plan",
                                                                    "embed",
                                                                    "norm",
                                                                    "qkv",
                                                                    "modules_qkv",
                                                                    "rotate",
                                                                    "attention",
                                                                    "o",
                                                                    "modules_o",
                                                                    "gate_up",
                                                                    "modules_gate_up",
                                                                    "activation",
                                                                    "down",
                                                                    "modules_down",
                                                                    "states",
                                                                    "head",
                                                                    "modules_head"};

/// Where the time of steps goes: each mark() books what has passed since the last one. For one model at a time.
class StepProfile {
public:
    void begin() { last_ = Clock::now(); }
    void mark(StepPart part) {
        const auto now = Clock::now();
        seconds_[static_cast<std::size_t>(part)] += std::chrono::duration<double>(now - last_).count();
        last_ = now;
    }
    /// Of all steps together, by StepPart.
    const std::array<double, kStepParts>& seconds() const { return seconds_; }

private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point last_{};
    std::array<double, kStepParts> seconds_{};
};

}  // namespace attune
