#include "engine/schedule/step_cost.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attune {
namespace {

constexpr double kFade = 0.97;       // per step: about thirty count
constexpr double kRowUnit = 64;      // keeps the terms of one size
constexpr double kPull = 0.0001;     // toward the last fit, where the steps do not tell the terms apart
constexpr double kMostSurprise = 3;  // a step that another process held up says little about the next
constexpr int kSurprised = 8;        // steps before anything is one
constexpr double kSeenFade = 0.995;
constexpr double kRateMemory = 10;  // seconds

}  // namespace

void StepCost::stepped(int decode_rows, int prompt_rows, double seconds) {
    if (decode_rows + prompt_rows < 1 || seconds <= 0) return;
    // Beyond what was seen the fit is a guess, and a surprise is news.
    if (samples_ >= kSurprised && prompt_rows <= seen_prompt_rows_)
        seconds = std::min(seconds, kMostSurprise * this->seconds(decode_rows, prompt_rows));
    ++samples_;
    const Row terms{1, decode_rows / kRowUnit, prompt_rows / kRowUnit};
    for (std::size_t i = 0; i < kTerms; ++i) {
        for (std::size_t j = 0; j < kTerms; ++j) products_[i][j] = products_[i][j] * kFade + terms[i] * terms[j];
        targets_[i] = targets_[i] * kFade + terms[i] * seconds;
    }
    fit();
    seen_prompt_rows_ = std::max(seen_prompt_rows_ * kSeenFade, static_cast<double>(prompt_rows));
}

/// (products + pull) fitted = targets + pull * last fit, by elimination: the pull makes every pivot positive.
void StepCost::fit() {
    auto left = products_;
    Row right = targets_;
    for (std::size_t i = 0; i < kTerms; ++i) {
        left[i][i] += kPull;
        right[i] += kPull * fitted_[i];
    }
    for (std::size_t pivot = 0; pivot < kTerms; ++pivot) {
        for (std::size_t row = pivot + 1; row < kTerms; ++row) {
            const double factor = left[row][pivot] / left[pivot][pivot];
            for (std::size_t column = pivot; column < kTerms; ++column)
                left[row][column] -= factor * left[pivot][column];
            right[row] -= factor * right[pivot];
        }
    }
    for (std::size_t row = kTerms; row-- > 0;) {
        for (std::size_t column = row + 1; column < kTerms; ++column) right[row] -= left[row][column] * right[column];
        right[row] /= left[row][row];
    }
    fitted_ = right;
}

double StepCost::seconds(int decode_rows, int prompt_rows) const {
    return std::max(0.0, fitted_[0] + fitted_[1] * decode_rows / kRowUnit + fitted_[2] * prompt_rows / kRowUnit);
}

int StepCost::prompt_rows_within(double seconds, int decode_rows) const {
    const double most = std::max<double>(kLeastPromptRows, 2 * seen_prompt_rows_);
    const double rest = seconds - this->seconds(decode_rows, 0);
    const double row = fitted_[2] / kRowUnit;
    if (samples_ == 0 || rest <= 0) return kLeastPromptRows;
    const double rows = row > 0 ? rest / row : most;
    return static_cast<int>(std::clamp<double>(rows, kLeastPromptRows, most));
}

void PromptRate::stepped(int rows, double seconds) {
    if (seconds <= 0) return;
    const double fade = std::exp(-seconds / kRateMemory);
    rows_ = rows_ * fade + rows;
    seconds_ = seconds_ * fade + seconds;
}

}  // namespace attune
