#pragma once

#include "attune/token_event.hpp"

namespace attune {

/// Where a request's events go. push() is called by one thread at a time (router, then executor), must not block, and
/// is called exactly once with Finished or Failed, as the last event.
class TokenSink {
public:
    virtual ~TokenSink() = default;
    virtual void push(OutputEvent event) = 0;
};

}  // namespace attune
