#pragma once

#include "attune/clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace attune {

/// Uses of a copy, each counting half after one half-life.
class RecentUses {
public:
    void use(TimePoint now, std::chrono::duration<double> half_life) {
        count_ = at(now, half_life) + 1.0;
        last_ = now;
    }
    double at(TimePoint now, std::chrono::duration<double> half_life) const {
        return count_ * std::exp2(-std::chrono::duration<double>(now - last_).count() / half_life.count());
    }

private:
    double count_ = 0;
    TimePoint last_{};
};

/// What one tier's copies are worth keeping: hits x cost of bringing it back / bytes, upon the tier's age, as in
/// Greedy-Dual-Size-Frequency (Cherkasova 1998). The age is the worth of whatever left last, so a newcomer is worth
/// more than what was just pushed out for it, and former favourites leave when nobody asks for them any more.
class KeepOrder {
public:
    /// More hits than this make nothing more worth keeping: when one group of modules hands over to another, the long
    /// burst of the first must not make the second push out its own.
    static constexpr double kCountedHits = 8;
    /// Seconds. No load is cheaper: time is measured coarsely.
    static constexpr double kLeastCost = 1e-3;

    double age() const { return age_; }
    /// `age`: the tier's when the copy was last used. `cost_seconds`: to bring it back.
    static double worth(double age, double hits, double cost_seconds, std::uint64_t bytes) {
        const double counted = std::min(hits, kCountedHits);
        return age +
               counted * std::max(cost_seconds, kLeastCost) / static_cast<double>(std::max<std::uint64_t>(bytes, 1));
    }
    /// A copy of this worth was pushed out.
    void left(double worth) { age_ = std::max(age_, worth); }

private:
    double age_ = 0;
};

}  // namespace attune
