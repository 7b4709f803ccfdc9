#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace attune {

/// Rows of prompts that are still to be read, of requests of one priority.
struct PromptRows {
    int priority = 0;
    std::int64_t rows = 0;
};

/// One entry per priority.
inline void add_prompt_rows(std::vector<PromptRows>& all, int priority, std::int64_t rows) {
    const auto known = std::ranges::find(all, priority, &PromptRows::priority);
    if (known == all.end())
        all.push_back({priority, rows});
    else
        known->rows += rows;
}

}  // namespace attune
