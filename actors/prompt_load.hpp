#pragma once

#include "engine/engine.hpp"

#include <mutex>
#include <vector>

namespace attune {

/// Rows of prompts between the router's door and their first tokens, and how fast they are read: what the router looks
/// at before it takes one more. Thread-safe.
class PromptLoad {
public:
    /// The router hands a prompt to the executor; the executor has it.
    void sent(int priority, std::int64_t rows);
    void taken(int priority, std::int64_t rows);
    /// What the engine holds now.
    void measured(std::vector<PromptRows> prompts, double rows_per_second);

    struct Ahead {
        std::int64_t rows = 0;       ///< that are read before a request of that priority
        double rows_per_second = 0;  ///< 0: not known yet
        double seconds() const { return static_cast<double>(rows) / rows_per_second; }
    };
    Ahead ahead_of(int priority) const;

private:
    mutable std::mutex mutex_;
    std::vector<PromptRows> sent_;  // as many as there are priorities in use
    std::vector<PromptRows> engine_;
    double rows_per_second_ = 0;
};

}  // namespace attune
