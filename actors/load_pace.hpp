#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace attune {

/// Large loads beside running answers take turns with the engine: after its first bytes a load rests four times as long
/// as it works, in pauses of milliseconds, as long as steps are computed. What is felt of a load is less the processor
/// it takes (the system sees to that: it is the least urgent) than the memory's bandwidth and the caches.
class LoadPace {
public:
    /// Small modules come as fast as they can; a load that keeps a core busy for longer than a step or two would be
    /// felt by every running answer.
    static constexpr std::uint64_t kFreeBytes = 32ull << 20;
    static constexpr int kRest = 4;
    static constexpr std::chrono::microseconds kLeastRest{1000};  ///< shorter ones are saved up

    using Duration = std::chrono::nanoseconds;
    struct Clock {
        std::function<Duration()> worked;     ///< processor time of this thread
        std::function<void(Duration)> sleep;  ///< of this thread
    };
    /// `is_busy`: the engine computes. `most_rest`: all pauses of one load together.
    LoadPace(std::function<bool()> is_busy, Duration most_rest, Clock clock = thread_clock());

    /// One more piece of so many bytes was worked on.
    void operator()(std::uint64_t bytes);

    static Clock thread_clock();

private:
    std::function<bool()> is_busy_;
    Duration rest_left_;
    Clock clock_;
    Duration worked_;
    Duration owed_{0};
    std::uint64_t bytes_ = 0;
};

}  // namespace attune
