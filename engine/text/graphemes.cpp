#include "engine/text/graphemes.hpp"

#include "engine/text/unicode.hpp"

#include <utf8proc.h>

namespace attune {

std::size_t grapheme_end(std::string_view text, std::size_t begin) {
    CodePoint point = code_point_at(text, begin);
    std::size_t at = begin + point.bytes;
    utf8proc_int32_t state = 0;
    while (at < text.size()) {
        const CodePoint next = code_point_at(text, at);
        if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(point.value),
                                             static_cast<utf8proc_int32_t>(next.value), &state)) {
            break;
        }
        point = next;
        at += next.bytes;
    }
    return at;
}

}  // namespace attune
