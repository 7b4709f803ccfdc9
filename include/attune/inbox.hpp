#pragma once

#include <concurrentqueue/concurrentqueue.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

namespace attune {

/// A lock-free queue with a doorbell: many producers, one owner.
///
/// push() may be called by any thread; drain() and park() by the owner only. The bell rings once for each time the
/// owner has parked, so a busy owner costs its producers no system call. Order holds per producer.
template <class T>
class Inbox {
public:
    explicit Inbox(std::function<void()> bell) : bell_(std::move(bell)) {}
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;

    void push(T item) {
        queue_.enqueue(std::move(item));
        // acq_rel exchanges on both sides: either the owner's second look sees the item, or we see it parked.
        if (parked_.exchange(false, std::memory_order_acq_rel)) bell_();
    }

    /// Hands every item now in the queue to `take`, oldest first per producer; returns how many.
    template <class Take>
    std::size_t drain(Take&& take) {
        std::size_t taken = 0;
        T item;
        while (queue_.try_dequeue(item)) {
            take(std::move(item));
            ++taken;
        }
        return taken;
    }

    /// Tells producers to ring from now on. False when an item slipped in: drain again instead of sleeping.
    [[nodiscard]] bool park() {
        parked_.exchange(true, std::memory_order_acq_rel);
        if (queue_.size_approx() == 0) return true;
        // If a producer already took the flag, its bell is on the way and a second drain is merely early.
        parked_.exchange(false, std::memory_order_acq_rel);
        return false;
    }

private:
    moodycamel::ConcurrentQueue<T> queue_;
    std::atomic<bool> parked_{true};
    std::function<void()> bell_;
};

}  // namespace attune
