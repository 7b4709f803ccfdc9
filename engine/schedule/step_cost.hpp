#pragma once

#include <array>
#include <cstddef>

namespace attune {

/// What a step takes, as a linear function of its decode rows and prompt rows, fitted to the last steps (older ones
/// fade). Numbers only, no clock.
class StepCost {
public:
    static constexpr int kLeastPromptRows = 16;  ///< a prompt is never held up altogether

    void stepped(int decode_rows, int prompt_rows, double seconds);
    /// Expected; 0 before the first step.
    double seconds(int decode_rows, int prompt_rows) const;
    /// Prompt rows that a step of so many decode rows has time for: at least kLeastPromptRows, at most twice what was
    /// seen lately, since beyond that the fit is a guess.
    int prompt_rows_within(double seconds, int decode_rows) const;

private:
    static constexpr std::size_t kTerms = 3;  // 1, decode rows, prompt rows
    using Row = std::array<double, kTerms>;
    void fit();

    int samples_ = 0;
    std::array<Row, kTerms> products_{};  // of the terms, summed over steps
    Row targets_{};                       // of the terms and the seconds, likewise
    Row fitted_{};
    double seen_prompt_rows_ = 0;  // the most in a step lately
};

/// How fast prompts are read, all in all: steps in which others had the room count as well.
class PromptRate {
public:
    /// A step while prompts were read or waited to be; `rows` of them are read now, or were found in the cache.
    void stepped(int rows, double seconds);
    /// 0: not known yet.
    double rows_per_second() const { return seconds_ > 0 ? rows_ / seconds_ : 0; }

private:
    double rows_ = 0, seconds_ = 0;  // fading sums
};

}  // namespace attune
