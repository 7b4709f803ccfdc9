#include "engine/kernels/worker_pool.hpp"

#include <catch2/catch.hpp>

#include <numeric>
#include <stdexcept>
#include <string>

using namespace attune;

namespace {

template <class F>
void run(WorkerPool& pool, std::int64_t count, std::int64_t grain, const F& f) {
    pool.run(
        count, grain,
        [](const void* context, std::int64_t begin, std::int64_t end) {
            (*static_cast<const F*>(context))(begin, end);
        },
        &f);
}

}  // namespace

TEST_CASE("every index of a loop is done once, whatever the threads, the count and the grain", "[engine][workers]") {
    for (const int threads : {1, 2, 3, 8}) {
        WorkerPool pool(threads);
        CHECK(pool.threads() == threads);
        for (const std::int64_t count : {0, 1, 2, 7, 63, 64, 1000})
            for (const std::int64_t grain : {1, 3, 64, 5000}) {
                std::vector<int> done(static_cast<std::size_t>(count), 0);
                run(pool, count, grain, [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) ++done[static_cast<std::size_t>(i)];
                });
                CHECK(done == std::vector<int>(static_cast<std::size_t>(count), 1));
            }
    }
}

TEST_CASE("what the workers wrote is seen by the caller, loop after loop", "[engine][workers]") {
    WorkerPool pool(4);
    std::vector<std::int64_t> values(257, 0);
    for (int loop = 1; loop <= 5000; ++loop) {
        run(pool, 257, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += i;
        });
        if (std::accumulate(values.begin(), values.end(), std::int64_t{0}) != loop * (256 * 257 / 2))
            FAIL("loop " << loop);
    }
}

TEST_CASE("workers that fell asleep come back for the next loop", "[engine][workers]") {
    WorkerPool pool(2);
    // Both pieces wait for each other, so that each needs a thread of its own.
    for (int loop = 0; loop < 20; ++loop) {
        std::atomic<int> inside{0};
        run(pool, 2, 1, [&](std::int64_t begin, std::int64_t end) {
            inside.fetch_add(static_cast<int>(end - begin));
            while (inside.load() < 2) std::this_thread::yield();
        });
        CHECK(inside.load() == 2);
        const auto asleep = std::chrono::steady_clock::now() + 2 * WorkerPool::kSpin;
        while (std::chrono::steady_clock::now() < asleep) std::this_thread::yield();
    }
}

TEST_CASE("a loop inside of a piece, or beside another thread's, is done alone", "[engine][workers]") {
    WorkerPool pool(3);
    std::atomic<int> done{0};
    run(pool, 6, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
            run(pool, 10, 1, [&](std::int64_t from, std::int64_t to) { done += static_cast<int>(to - from); });
    });
    CHECK(done.load() == 60);

    std::vector<std::thread> callers;
    std::atomic<int> sum{0};
    for (int caller = 0; caller < 4; ++caller)
        callers.emplace_back([&] {
            for (int loop = 0; loop < 500; ++loop)
                run(pool, 16, 1, [&](std::int64_t begin, std::int64_t end) { sum += static_cast<int>(end - begin); });
        });
    for (std::thread& caller : callers) caller.join();
    CHECK(sum.load() == 4 * 500 * 16);
}

TEST_CASE("what a piece throws reaches the caller, and the pool goes on", "[engine][workers]") {
    WorkerPool pool(2);
    CHECK_THROWS_WITH(run(pool, 100, 1,
                          [](std::int64_t begin, std::int64_t) {
                              if (begin >= 50) throw std::runtime_error("piece");
                          }),
                      "piece");
    int done = 0;
    run(pool, 1, 1, [&](std::int64_t, std::int64_t) { ++done; });
    CHECK(done == 1);
}

TEST_CASE("the shared pool changes its number of threads between loops", "[engine][workers]") {
    const int before = worker_threads();
    for (const int threads : {1, 3, 2}) {
        set_worker_threads(threads);
        CHECK(worker_threads() == threads);
        std::atomic<std::int64_t> sum{0};
        parallel_for(1000, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
        CHECK(sum.load() == 1000);
    }
    set_worker_threads(before);
}
