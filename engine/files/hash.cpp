#include "engine/files/hash.hpp"

#include <openssl/evp.h>

#include <stdexcept>

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

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) { EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()); }

void Sha256::update(std::string_view text) { EVP_DigestUpdate(state_->context, text.data(), text.size()); }

std::string Sha256::hex() {
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
