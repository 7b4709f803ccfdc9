#pragma once

#include "engine/weights/base_audit.hpp"

#include <cstddef>

namespace attune {

/// A whole pass of the audit: true when every tensor has the hash that is expected of it.
inline bool is_clean(BaseAudit& audit) {
    bool clean = true;
    for (std::size_t i = 0; i < audit.tensors(); ++i) {
        BaseAudit::Progress progress;
        while (!progress.complete) progress = audit.hash_some(i, 1 << 20);
        clean = clean && progress.hash == audit.expected(i);
    }
    return clean;
}

}  // namespace attune
