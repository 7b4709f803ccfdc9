#pragma once

#include <chrono>
#include <functional>

namespace attune {

using TimePoint = std::chrono::steady_clock::time_point;
/// Where the time comes from: steady_clock in the server, a variable in tests.
using Now = std::function<TimePoint()>;

inline TimePoint steady_now() { return std::chrono::steady_clock::now(); }

inline double milliseconds_between(TimePoint from, TimePoint to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace attune
