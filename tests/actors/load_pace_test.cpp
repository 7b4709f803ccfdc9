#include "actors/load_pace.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using namespace std::chrono_literals;

namespace {

/// A thread whose pieces take half a millisecond of the processor each.
struct Thread {
    LoadPace pace(LoadPace::Duration most_rest = 1h) {
        return LoadPace([this] { return busy; }, most_rest,
                        {[this] { return worked; }, [this](LoadPace::Duration time) { rested += time; }});
    }
    void read(LoadPace& pace, std::uint64_t bytes) {
        for (; bytes > 0; bytes -= std::min(bytes, kPiece)) {
            worked += 500us;
            pace(std::min(bytes, kPiece));
        }
    }
    static constexpr std::uint64_t kPiece = 1 << 20;
    LoadPace::Duration worked{0};
    LoadPace::Duration rested{0};
    bool busy = true;
};

}  // namespace

TEST_CASE("a small load never pauses", "[actors][loader]") {
    Thread thread;
    auto pace = thread.pace();
    thread.read(pace, LoadPace::kFreeBytes);
    CHECK(thread.rested == 0ns);
}

TEST_CASE("a large load beside steps works a fifth of its time from then on", "[actors][loader]") {
    Thread thread;
    auto pace = thread.pace();
    thread.read(pace, LoadPace::kFreeBytes + 100 * Thread::kPiece);
    CHECK(thread.rested == 4 * 100 * 500us);
}

TEST_CASE("a large load runs when nothing is computed", "[actors][loader]") {
    Thread thread;
    auto pace = thread.pace();
    thread.busy = false;
    thread.read(pace, 10 * LoadPace::kFreeBytes);
    CHECK(thread.rested == 0ns);
    thread.busy = true;
    thread.read(pace, 10 * Thread::kPiece);
    CHECK(thread.rested == 4 * 10 * 500us);
}

TEST_CASE("the pauses of one load have a limit", "[actors][loader]") {
    Thread thread;
    auto pace = thread.pace(30ms);
    thread.read(pace, 10 * LoadPace::kFreeBytes);
    CHECK(thread.rested == 30ms);
}
