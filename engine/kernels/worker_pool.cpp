#include "engine/kernels/worker_pool.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attune {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

/// Looks until `ready` or for WorkerPool::kSpin; true when ready.
template <class Ready>
bool spin(const Ready& ready) {
    constexpr int kLooks = 32;  // between two looks at the clock
    const auto end = std::chrono::steady_clock::now() + WorkerPool::kSpin;
    do {
        for (int i = 0; i < kLooks; ++i) {
            if (ready()) return true;
            pause_briefly();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

thread_local bool inside_piece = false;

}  // namespace

WorkerPool::WorkerPool(int threads) { start(threads); }

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::resize(int threads) {
    const std::lock_guard called(calling_);
    if (std::max(threads, 1) == threads_.load(std::memory_order_relaxed)) return;
    stop();
    start(threads);
}

void WorkerPool::start(int threads) {
    stop_.store(false, std::memory_order_relaxed);
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
    threads_.store(std::max(threads, 1), std::memory_order_relaxed);
}

void WorkerPool::stop() {
    stop_.store(true, std::memory_order_relaxed);
    number_.fetch_add(1, std::memory_order_release);
    number_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
}

void WorkerPool::run(std::int64_t count, std::int64_t grain, Piece piece, const void* context) {
    if (count <= 0) return;
    const std::int64_t most = std::int64_t{threads()} * kPiecesPerThread;
    const std::int64_t pieces = std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, most);
    if (pieces == 1 || threads() == 1 || inside_piece || !calling_.try_lock()) return piece(context, 0, count);
    const std::lock_guard called(calling_, std::adopt_lock);
    loop_ = Loop{piece, context, count, (count + pieces - 1) / pieces};
    next_.store(0, std::memory_order_relaxed);
    const std::uint32_t number = number_.load(std::memory_order_relaxed) + 1;
    gate_.store((number << kNumberShift) | kOpen, std::memory_order_release);
    number_.store(number, std::memory_order_release);
    number_.notify_all();
    take_pieces();
    gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
    await_empty();
    if (std::exception_ptr fault = std::exchange(fault_, nullptr)) std::rethrow_exception(fault);
}

void WorkerPool::take_pieces() {
    inside_piece = true;
    try {
        for (;;) {
            const std::int64_t begin = next_.fetch_add(loop_.step, std::memory_order_relaxed);
            if (begin >= loop_.count) break;
            loop_.piece(loop_.context, begin, std::min(begin + loop_.step, loop_.count));
        }
    } catch (...) {
        const std::scoped_lock lock(fault_mutex_);
        if (!fault_) fault_ = std::current_exception();
    }
    inside_piece = false;
}

void WorkerPool::serve() {
    std::uint32_t seen = 0;
    for (;;) {
        seen = await_loop(seen);
        if (stop_.load(std::memory_order_relaxed)) return;
        if (!enter(seen)) continue;
        take_pieces();
        const std::uint32_t before = gate_.fetch_sub(1, std::memory_order_acq_rel);
        if ((before & (kInside | kOpen)) == 1) gate_.notify_all();
    }
}

/// True when the loop of this number still takes helpers; the caller waits for those who entered.
bool WorkerPool::enter(std::uint32_t number) {
    std::uint32_t gate = gate_.load(std::memory_order_acquire);
    while ((gate & kOpen) != 0 && gate >> kNumberShift == (number << kNumberShift) >> kNumberShift)
        if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_acquire))
            return true;
    return false;
}

std::uint32_t WorkerPool::await_loop(std::uint32_t seen) const {
    spin([&] { return number_.load(std::memory_order_acquire) != seen; });
    number_.wait(seen, std::memory_order_acquire);
    return number_.load(std::memory_order_acquire);
}

void WorkerPool::await_empty() const {
    const auto inside = [this] { return gate_.load(std::memory_order_acquire) & kInside; };
    if (spin([&] { return inside() == 0; })) return;
    for (std::uint32_t gate = gate_.load(std::memory_order_acquire); (gate & kInside) != 0;
         gate = gate_.load(std::memory_order_acquire))
        gate_.wait(gate, std::memory_order_acquire);
}

// ---------------------------------------------------------------- the shared pool

namespace {

// One for the life of the process, so that a loop takes no lock and counts no owner to find it.
WorkerPool& shared_pool() {
    static WorkerPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    return pool;
}

}  // namespace

void set_worker_threads(int threads) { shared_pool().resize(threads); }

int worker_threads() { return shared_pool().threads(); }

void run_on_workers(std::int64_t count, std::int64_t grain, WorkerPool::Piece piece, const void* context) {
    shared_pool().run(count, grain, piece, context);
}

}  // namespace attune
