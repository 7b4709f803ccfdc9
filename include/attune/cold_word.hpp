#pragma once

#include "attune/request.hpp"

#include <string_view>

namespace attune {

/// What `attune-cold`, `attune.cold` and the metric call it.
constexpr std::string_view cold_word(ColdWord word) {
    switch (word) {
        case ColdWord::warm:
            return "warm";
        case ColdWord::wait:
            return "wait";
        case ColdWord::fallback:
            return "fallback";
        case ColdWord::upgrade:
            return "upgrade";
        case ColdWord::revise:
            return "revise";
    }
    return "warm";
}

}  // namespace attune
