#include "actors/load_pace.hpp"

#include <time.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace attune {

LoadPace::LoadPace(std::function<bool()> is_busy, Duration most_rest, Clock clock)
    : is_busy_(std::move(is_busy)), rest_left_(most_rest), clock_(std::move(clock)), worked_(clock_.worked()) {}

void LoadPace::operator()(std::uint64_t bytes) {
    bytes_ += bytes;
    const Duration worked = clock_.worked();
    const Duration piece = worked - std::exchange(worked_, worked);
    if (bytes_ <= kFreeBytes || !is_busy_()) {
        owed_ = Duration(0);
        return;
    }
    owed_ += kRest * piece;
    if (owed_ < kLeastRest || rest_left_ <= Duration(0)) return;
    const Duration rest = std::min(std::exchange(owed_, Duration(0)), rest_left_);
    rest_left_ -= rest;
    clock_.sleep(rest);
}

LoadPace::Clock LoadPace::thread_clock() {
    const auto worked = [] {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
    };
    return {worked, [](Duration time) { std::this_thread::sleep_for(time); }};
}

}  // namespace attune
