#include "actors/prompt_load.hpp"

#include <algorithm>
#include <utility>

namespace attune {

void PromptLoad::sent(int priority, std::int64_t rows) {
    const std::scoped_lock lock(mutex_);
    add_prompt_rows(sent_, priority, rows);
}

void PromptLoad::taken(int priority, std::int64_t rows) {
    const std::scoped_lock lock(mutex_);
    const auto known = std::ranges::find(sent_, priority, &PromptRows::priority);
    if (known == sent_.end()) return;  // not from the router
    known->rows -= rows;
    if (known->rows <= 0) sent_.erase(known);
}

void PromptLoad::measured(std::vector<PromptRows> prompts, double rows_per_second) {
    const std::scoped_lock lock(mutex_);
    engine_ = std::move(prompts);
    rows_per_second_ = rows_per_second;
}

PromptLoad::Ahead PromptLoad::ahead_of(int priority) const {
    const std::scoped_lock lock(mutex_);
    Ahead ahead{0, rows_per_second_};
    for (const auto* all : {&sent_, &engine_})
        for (const PromptRows& one : *all)
            if (one.priority >= priority) ahead.rows += one.rows;
    return ahead;
}

}  // namespace attune
