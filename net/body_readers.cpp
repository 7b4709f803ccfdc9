#include "net/body_readers.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include <exception>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace attune {
namespace {

// Two, so that a body of 100 KB does not wait for one of 16 MB; more would take the cores from the model.
constexpr std::size_t kThreads = 2;

asio::awaitable<void> call(const std::function<void()>& read) {
    read();
    co_return;
}

}  // namespace

BodyReaders::BodyReaders(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes), pool_(kThreads) {}

BodyReaders::~BodyReaders() { pool_.join(); }

bool BodyReaders::admit(std::uint64_t bytes) {
    std::uint64_t held = held_bytes_.load();
    do {
        if (held > 0 && held + bytes > limit_bytes_) return false;
    } while (!held_bytes_.compare_exchange_weak(held, held + bytes));
    return true;
}

asio::awaitable<bool> BodyReaders::run(std::uint64_t bytes, const std::function<void()>& read) {
    if (!admit(bytes)) co_return false;
    auto on_thread = call(read);
    const auto executor = pool_.get_executor();
    const auto [fault] = co_await asio::co_spawn(executor, std::move(on_thread), kAwait);
    held_bytes_ -= bytes;
    if (fault) std::rethrow_exception(fault);
    co_return true;
}

void BodyReaders::release_memory() {
#ifdef __GLIBC__
    if (is_releasing_.exchange(true)) return;
    asio::post(pool_, [this] {
        is_releasing_ = false;
        malloc_trim(0);
    });
#endif
}

}  // namespace attune
