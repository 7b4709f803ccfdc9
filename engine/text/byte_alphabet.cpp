#include "engine/text/byte_alphabet.hpp"

#include "engine/text/unicode.hpp"

namespace attune {
namespace {

bool is_kept(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

std::array<char32_t, 256> make_code_points() {
    std::array<char32_t, 256> points{};
    char32_t extra = 256;
    for (int byte = 0; byte < 256; ++byte) {
        points[static_cast<std::size_t>(byte)] = is_kept(byte) ? static_cast<char32_t>(byte) : extra++;
    }
    return points;
}

std::array<std::string, 256> make_characters() {
    std::array<std::string, 256> characters;
    const auto points = make_code_points();
    for (std::size_t byte = 0; byte < 256; ++byte) append_utf8(characters[byte], points[byte]);
    return characters;
}

/// Code point -> byte, -1 where the alphabet has none; its code points end below 324.
std::array<int, 324> make_inverse() {
    std::array<int, 324> inverse;
    inverse.fill(-1);
    const auto points = make_code_points();
    for (std::size_t byte = 0; byte < 256; ++byte) inverse[points[byte]] = static_cast<int>(byte);
    return inverse;
}

}  // namespace

const std::array<std::string, 256>& byte_characters() {
    static const std::array<std::string, 256> characters = make_characters();
    return characters;
}

std::string fallback_token(unsigned char byte) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

bool append_bytes_of_alphabet(std::string_view text, std::string& out) {
    static const std::array<int, 324> inverse = make_inverse();
    const std::size_t before = out.size();
    out.resize(before + text.size());  // enough: no character is shorter than the byte it stands for
    char* to = out.data() + before;
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = code_point_at(text, at);
        if (point.value >= inverse.size() || inverse[point.value] < 0) {
            out.resize(before);
            return false;
        }
        *to++ = static_cast<char>(inverse[point.value]);
        at += point.bytes;
    }
    out.resize(static_cast<std::size_t>(to - out.data()));
    return true;
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
    std::string bytes;
    if (!append_bytes_of_alphabet(text, bytes)) return std::nullopt;
    return bytes;
}

}  // namespace attune
