#pragma once

#include "attune/result.hpp"

#include "attune/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace attune {

/// Hashes of the resident base. Torch-free; every method may be called from any thread, except restore() and
/// flip_bit(). XXH3-128 per tensor as held in memory, 32 hex digits.
class BaseAudit {
public:
    virtual ~BaseAudit() = default;

    virtual std::size_t tensors() const = 0;
    virtual const std::string& name(std::size_t tensor) const = 0;
    virtual std::uint64_t bytes(std::size_t tensor) const = 0;
    /// The hash taken right after the load.
    virtual const std::string& expected(std::size_t tensor) const = 0;

    /// Hashes up to `budget` bytes of a tensor, continuing where the last call for it stopped; slices of at most 1 MiB
    /// under the tensor's gate. `hash` is filled when the tensor is complete: expected() for a merged tensor that is
    /// what its merge made of it. A tensor whose epoch moved (it was rewritten) starts over.
    struct Progress {
        std::uint64_t bytes = 0;
        bool complete = false;
        std::string hash;
    };
    virtual Progress hash_some(std::size_t tensor, std::uint64_t budget) = 0;

    /// sha256:... over the source files (DESIGN, checkpoint id).
    virtual const std::string& checkpoint() const = 0;
    /// One hash over all tensors' hashes in name order.
    static std::string combine(const std::vector<std::string>& hashes);

    /// Writes the tensor as it was loaded, read again from its source and verified before and after. The executor's
    /// thread only, between steps. Errc::base_damaged when the source does not give it any more.
    virtual Result<void> restore(std::size_t tensor) = 0;

    /// Flips one bit of a resident weight. For tests of the alarm only; never reachable from a socket.
    virtual void flip_bit(std::size_t tensor, std::uint64_t byte) = 0;
};

}  // namespace attune
