#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace attune {

/// SHA-256 (FIPS 180-4, OpenSSL): checkpoint ids and generations.
class Sha256 {
public:
    Sha256();
    /// Hashes on a thread of its own while the caller goes on; at most kWaitingBytes wait to be hashed.
    static Sha256 on_own_thread();
    ~Sha256();
    Sha256(Sha256&&) noexcept;
    Sha256& operator=(Sha256&&) noexcept;

    void update(std::span<const std::byte> bytes);
    void update(std::string_view text);
    std::string hex();  ///< 64 lower-case digits; ends the hash

    static constexpr std::size_t kWaitingBytes = std::size_t{8} << 20;

private:
    struct State;
    struct Queue;
    std::unique_ptr<State> state_;
    std::unique_ptr<Queue> queue_;  // null: hashed by the caller
};

/// XXH3-128: the resident base, many times a day.
class Xxh128 {
public:
    Xxh128();
    ~Xxh128();
    Xxh128(Xxh128&&) noexcept;
    Xxh128& operator=(Xxh128&&) noexcept;

    void update(std::span<const std::byte> bytes);
    std::string hex() const;  ///< 32 lower-case digits of what was given so far

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace attune
