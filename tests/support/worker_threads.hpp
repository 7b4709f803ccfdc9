#pragma once

#include "engine/kernels/worker_pool.hpp"

namespace attune {

/// So many threads in the shared pool, until its end; then as many as before.
class WorkerThreads {
public:
    explicit WorkerThreads(int threads) { set_worker_threads(threads); }
    ~WorkerThreads() { set_worker_threads(before_); }
    WorkerThreads(const WorkerThreads&) = delete;
    WorkerThreads& operator=(const WorkerThreads&) = delete;

private:
    int before_ = worker_threads();
};

}  // namespace attune
