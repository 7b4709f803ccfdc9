#pragma once

#include "attune/ids.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace attune {

/// Which tokens may come next (JSON schema, grammar, choice). Compiled off the executor, one per choice, then owned by
/// its sequence. Applied to the logits before top-k and top-p.
class TokenConstraint {
public:
    virtual ~TokenConstraint() = default;
    /// One bit per vocabulary entry, least significant first; set = allowed. Valid until the next non-const call.
    virtual std::span<const std::uint32_t> mask() = 0;
    virtual void advance(TokenId token) = 0;
    /// Undoes the last n tokens.
    virtual void rollback(int n) = 0;
    /// A fresh copy at the same point, for n > 1.
    virtual std::unique_ptr<TokenConstraint> clone() const = 0;
};

}  // namespace attune
