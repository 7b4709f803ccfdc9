#include "engine/files/quote.hpp"

#include <cstdio>

namespace attune {

std::string in_quotes(std::string_view name, std::size_t limit) {
    bool cut = false;
    if (name.size() > limit) {
        cut = true;
        std::size_t end = limit;
        while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;
        name = name.substr(0, end);
    }
    std::string text = "\"";
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            text += '\\';
            text += c;
        } else if (byte < 0x20 || byte == 0x7F) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", byte);
            text += escape;
        } else {
            text += c;
        }
    }
    return text + (cut ? "...\"" : "\"");
}

}  // namespace attune
