#pragma once

#include <cstdio>
#include <cstdlib>

/// For broken invariants of our own, in every build: prints where and aborts. Never for anything a user can cause.
#define ATTUNE_ASSERT(condition)                                                                 \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            std::fprintf(stderr, "attune: %s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                        \
        }                                                                                        \
    } while (false)
