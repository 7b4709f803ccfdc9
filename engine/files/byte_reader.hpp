#pragma once

#include "attune/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>

namespace attune {

/// The first `end` bytes of a file or of memory, read once and in order through a small buffer. Little-endian, as all
/// our formats and machines are.
class ByteReader {
public:
    /// Copies the bytes from `offset` on into the whole of `into`.
    using Fetch = std::function<Result<void>(std::uint64_t offset, std::span<std::byte> into)>;
    /// Gets every byte that was read, in order, and none after it.
    using Seen = std::function<void(std::span<const std::byte>)>;

    ByteReader(Fetch fetch, std::uint64_t end, Seen seen = {});

    std::uint64_t position() const { return fetched_ - (filled_ - used_); }
    std::uint64_t left() const { return end_ - position(); }

    /// False, with nothing read, when fewer bytes are left; false also when fetching failed, and then error() is set.
    bool read(std::span<std::byte> into);
    template <class T>
    requires std::is_arithmetic_v<T>
    bool read(T& number) {
        if (filled_ - used_ < sizeof(T)) return read(std::as_writable_bytes(std::span(&number, 1)));
        std::memcpy(&number, buffer_.data() + used_, sizeof(T));
        used_ += sizeof(T);
        return true;
    }
    const std::optional<Error>& error() const { return error_; }

    /// Tells `seen` of the bytes it has not got yet; the last call on a reader.
    void finish();

private:
    bool refill();

    Fetch fetch_;
    Seen seen_;
    std::uint64_t end_;
    std::uint64_t fetched_ = 0;  // bytes of the file that have been in the buffer
    std::size_t filled_ = 0;     // of the buffer
    std::size_t used_ = 0;
    std::optional<Error> error_;
    std::array<std::byte, 16 * 1024> buffer_;
};

}  // namespace attune
