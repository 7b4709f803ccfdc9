#include "engine/files/hash.hpp"

#include <openssl/evp.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace attune {
namespace {

std::string hex_text(const unsigned char* bytes, std::size_t count) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    text.reserve(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
        text += kDigits[bytes[i] >> 4];
        text += kDigits[bytes[i] & 15];
    }
    return text;
}

}  // namespace

struct Sha256::State {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    State() {
        // Only an OpenSSL without SHA-256 or without memory gets here: not a foreseen failure.
        if (context == nullptr || EVP_DigestInit_ex(context, EVP_sha256(), nullptr) != 1) {
            EVP_MD_CTX_free(context);
            throw std::runtime_error("SHA-256 is not available");
        }
    }
    ~State() { EVP_MD_CTX_free(context); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
};

/// What waits for the hashing thread. It ends when told that nothing more comes, with everything hashed.
struct Sha256::Queue {
    explicit Queue(EVP_MD_CTX* hash) : context(hash), thread([this] { serve(); }) {}
    ~Queue() { finish(); }
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    void push(std::span<const std::byte> bytes) {
        std::vector<std::byte> piece(bytes.begin(), bytes.end());
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return waiting_bytes < kWaitingBytes; });
        waiting_bytes += piece.size();
        pieces.push_back(std::move(piece));
        changed.notify_all();
    }

    void finish() {
        {
            const std::scoped_lock lock(mutex);
            closed = true;
        }
        changed.notify_all();
        if (thread.joinable()) thread.join();
    }

private:
    void serve() {
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return closed || !pieces.empty(); });
            if (pieces.empty()) return;
            const std::vector<std::byte> piece = std::move(pieces.front());
            pieces.pop_front();
            lock.unlock();
            EVP_DigestUpdate(context, piece.data(), piece.size());
            lock.lock();
            waiting_bytes -= piece.size();
            changed.notify_all();
        }
    }

    EVP_MD_CTX* context;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::vector<std::byte>> pieces;
    std::size_t waiting_bytes = 0;
    bool closed = false;
    std::thread thread;  // last: it uses all of the above
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;

Sha256& Sha256::operator=(Sha256&& other) noexcept {
    queue_.reset();  // its thread works on the state that goes
    state_ = std::move(other.state_);
    queue_ = std::move(other.queue_);
    return *this;
}

Sha256 Sha256::on_own_thread() {
    Sha256 hash;
    hash.queue_ = std::make_unique<Queue>(hash.state_->context);
    return hash;
}

void Sha256::update(std::span<const std::byte> bytes) {
    if (queue_) return queue_->push(bytes);
    EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text))); }

std::string Sha256::hex() {
    if (queue_) queue_->finish();
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(state_->context, digest, &size);
    return hex_text(digest, size);
}

struct Xxh128::State {
    XXH3_state_t state;
    State() { XXH3_128bits_reset(&state); }
};

Xxh128::Xxh128() : state_(std::make_unique<State>()) {}
Xxh128::~Xxh128() = default;
Xxh128::Xxh128(Xxh128&&) noexcept = default;
Xxh128& Xxh128::operator=(Xxh128&&) noexcept = default;

void Xxh128::update(std::span<const std::byte> bytes) {
    XXH3_128bits_update(&state_->state, bytes.data(), bytes.size());
}

std::string Xxh128::hex() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->state));
    return hex_text(canonical.digest, sizeof canonical.digest);
}

}  // namespace attune
