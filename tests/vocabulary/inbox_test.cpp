#include "attune/inbox.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

using attune::Inbox;

TEST_CASE("the bell rings once for each time the owner has parked", "[inbox]") {
    int bells = 0;
    Inbox<int> inbox{[&] { ++bells; }};
    inbox.push(1);
    inbox.push(2);
    CHECK(bells == 1);

    std::vector<int> seen;
    CHECK(inbox.drain([&](int item) { seen.push_back(item); }) == 2);
    CHECK(seen == std::vector<int>{1, 2});
    inbox.push(3);
    CHECK(bells == 1);  // the owner has not parked, so it will look again by itself
}

TEST_CASE("parking fails while an item is waiting", "[inbox]") {
    int bells = 0;
    Inbox<int> inbox{[&] { ++bells; }};
    inbox.push(1);
    CHECK_FALSE(inbox.park());
    inbox.drain([](int) {});
    CHECK(inbox.park());
    inbox.push(2);
    CHECK(bells == 2);
}

TEST_CASE("a push after a failed park rings no bell", "[inbox]") {
    int bells = 0;
    Inbox<int> inbox{[&] { ++bells; }};
    inbox.push(1);
    REQUIRE_FALSE(inbox.park());
    inbox.push(2);
    CHECK(bells == 1);
    CHECK(inbox.drain([](int) {}) == 2);
}

TEST_CASE("move-only items pass through", "[inbox]") {
    Inbox<std::unique_ptr<int>> inbox{[] {}};
    inbox.push(std::make_unique<int>(7));
    int value = 0;
    inbox.drain([&](std::unique_ptr<int> item) { value = *item; });
    CHECK(value == 7);
}

TEST_CASE("no item is lost and no wake-up missed with four producers", "[inbox]") {
    constexpr int kProducers = 4;
    constexpr int kItems = 20000;
    std::counting_semaphore<> bell{0};
    Inbox<int> inbox{[&] { bell.release(); }};

    std::vector<std::thread> producers;
    for (int p = 0; p < kProducers; ++p) {
        producers.emplace_back([&inbox, p] {
            for (int i = 0; i < kItems; ++i) inbox.push(p * kItems + i);
        });
    }
    // The owner sleeps only on the bell: a lost wake-up would leave it here for ever (and ctest's limit would tell).
    std::vector<int> last(kProducers, -1);
    int received = 0;
    bool in_order = true;
    while (received < kProducers * kItems) {
        received += static_cast<int>(inbox.drain([&](int item) {
            const int producer = item / kItems;
            in_order = in_order && item % kItems > last[producer];
            last[producer] = item % kItems;
        }));
        if (received < kProducers * kItems && inbox.park()) bell.acquire();
    }
    for (auto& producer : producers) producer.join();
    CHECK(in_order);
    CHECK(received == kProducers * kItems);
}
