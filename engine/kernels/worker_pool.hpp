#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace attune {

/// Threads that share the pieces of one loop with whoever calls run(). Pieces are taken from a common counter and
/// nobody waits for a thread that has not come: when another process holds its core, the caller does the work itself.
/// Between loops a worker looks for the next one for kSpin, then it sleeps.
///
/// (libgomp's threads wait for each other at fixed shares, and spin meanwhile: one busy neighbour on two cores makes a
/// step thirty times as long.)
class WorkerPool {
public:
    static constexpr std::chrono::microseconds kSpin{50};
    /// More pieces than threads, so that a late one leaves its share to the others.
    static constexpr int kPiecesPerThread = 4;

    /// Does indices [begin, end) of a loop.
    using Piece = void (*)(const void* context, std::int64_t begin, std::int64_t end);

    /// `threads`: with the caller, at least 1.
    explicit WorkerPool(int threads);
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    int threads() const { return threads_.load(std::memory_order_relaxed); }
    /// Waits for a running loop, then there are this many threads, at least 1.
    void resize(int threads);

    /// Runs `piece` over [0, count) in pieces of at least `grain` indices and returns when all are done. What a piece
    /// throws is thrown here, once. A call from within a piece, or while another thread's loop runs, is done alone.
    void run(std::int64_t count, std::int64_t grain, Piece piece, const void* context);

private:
    // The gate: workers inside, whether one may enter, and the loop's number.
    static constexpr std::uint32_t kInside = (1U << 16) - 1;
    static constexpr std::uint32_t kOpen = 1U << 16;
    static constexpr std::uint32_t kNumberShift = 17;

    void start(int threads);
    void stop();
    void serve();
    bool enter(std::uint32_t number);
    void take_pieces();
    std::uint32_t await_loop(std::uint32_t seen) const;
    void await_empty() const;

    struct Loop {
        Piece piece = nullptr;
        const void* context = nullptr;
        std::int64_t count = 0;
        std::int64_t step = 1;
    };
    Loop loop_;  // written while the gate is shut and empty
    alignas(64) std::atomic<std::int64_t> next_{0};
    alignas(64) std::atomic<std::uint32_t> gate_{0};
    alignas(64) std::atomic<std::uint32_t> number_{0};  // of the last loop; workers sleep on it
    std::atomic<bool> stop_{false};
    std::atomic<int> threads_{1};
    std::mutex calling_;
    std::mutex fault_mutex_;
    std::exception_ptr fault_;
    std::vector<std::thread> workers_;
};

/// The pool that all kernels share: a process has as many cores, however many engines it holds.
/// Waits for a running loop, then the pool has this many threads.
void set_worker_threads(int threads);
/// All cores until set_worker_threads() says otherwise.
int worker_threads();
void run_on_workers(std::int64_t count, std::int64_t grain, WorkerPool::Piece piece, const void* context);

/// f(begin, end) over [0, count), on all threads when there is more than `grain` to do.
template <class F>
void parallel_for(std::int64_t count, std::int64_t grain, const F& f) {
    if (count <= 0) return;
    if (count <= grain) return f(std::int64_t{0}, count);
    run_on_workers(
        count, grain,
        [](const void* context, std::int64_t begin, std::int64_t end) {
            (*static_cast<const F*>(context))(begin, end);
        },
        &f);
}

}  // namespace attune
