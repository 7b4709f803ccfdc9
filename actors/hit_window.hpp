#pragma once

#include "attune/clock.hpp"

#include <deque>
#include <map>
#include <string>

namespace attune {

/// Hits per name within the last `window`.
class HitWindow {
public:
    explicit HitWindow(std::chrono::duration<double> window) : window_(window) {}

    void hit(const std::string& name, TimePoint at) {
        auto& row = rows_[name];
        row.times.push_back(at);
        // A flood needs no more than a count: beyond this many the oldest are forgotten.
        if (row.times.size() > kKept) row.times.pop_front();
        row.last = at;
    }

    /// In use without a hit: it is not idle.
    void touch(const std::string& name, TimePoint at) { rows_[name].last = at; }

    void forget(const std::string& name) { rows_.erase(name); }

    int hits(const std::string& name, TimePoint now) {
        const auto found = rows_.find(name);
        if (found == rows_.end()) return 0;
        trim(found->second, now);
        return static_cast<int>(found->second.times.size());
    }

    double per_minute(const std::string& name, TimePoint now) { return hits(name, now) * 60.0 / window_.count(); }

    /// When it was last named; the clock's epoch when never.
    TimePoint last(const std::string& name) const {
        const auto found = rows_.find(name);
        return found == rows_.end() ? TimePoint{} : found->second.last;
    }

    /// Names with at least `least` hits; forgets those that were not named for a day.
    std::map<std::string, int> hot(int least, TimePoint now) {
        std::map<std::string, int> result;
        for (auto row = rows_.begin(); row != rows_.end();) {
            trim(row->second, now);
            const int count = static_cast<int>(row->second.times.size());
            if (count >= least) result[row->first] = count;
            row = now - row->second.last > kForgotten ? rows_.erase(row) : std::next(row);
        }
        return result;
    }

private:
    static constexpr std::size_t kKept = 100000;
    static constexpr std::chrono::hours kForgotten{24};
    struct Row {
        std::deque<TimePoint> times;
        TimePoint last{};
    };
    void trim(Row& row, TimePoint now) const {
        while (!row.times.empty() && now - row.times.front() >= window_) row.times.pop_front();
    }

    std::chrono::duration<double> window_;
    std::map<std::string, Row> rows_;
};

}  // namespace attune
