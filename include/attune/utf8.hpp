#pragma once

#include <cstddef>
#include <string_view>

namespace attune {

/// Whether `text` is well-formed UTF-8 (Unicode's table 3-7: no overlong forms, no surrogates). Any thread.
inline bool is_valid_utf8(std::string_view text) {
    const std::size_t size = text.size();
    for (std::size_t at = 0; at < size;) {
        const auto lead = static_cast<unsigned char>(text[at++]);
        if (lead < 0x80) continue;
        if (lead < 0xC2 || lead > 0xF4) return false;
        const std::size_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        if (more > size - at) return false;
        const auto second = static_cast<unsigned char>(text[at]);
        if (lead == 0xE0 && second < 0xA0) return false;  // overlong
        if (lead == 0xED && second > 0x9F) return false;  // surrogate
        if (lead == 0xF0 && second < 0x90) return false;  // overlong
        if (lead == 0xF4 && second > 0x8F) return false;  // beyond U+10FFFF
        for (const std::size_t end = at + more; at < end; ++at)
            if ((static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U) return false;
    }
    return true;
}

}  // namespace attune
