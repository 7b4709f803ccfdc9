#include "net/json_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace attune {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the well-formed character at the front of `text`, 0 when there is none (Unicode, table 3-7).
std::size_t character_bytes(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return 0;
    const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if (!is_continuation(byte(i))) return 0;
    const unsigned char second = byte(1);
    const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
    const bool surrogate = first == 0xED && second > 0x9F;
    const bool too_high = first == 0xF4 && second > 0x8F;
    return overlong || surrogate || too_high ? 0 : length;
}

void append_escaped(std::string& out, unsigned char byte) {
    constexpr std::string_view kHex = "0123456789abcdef";
    switch (byte) {
        case '"':
            out += "\\\"";
            return;
        case '\\':
            out += "\\\\";
            return;
        case '\n':
            out += "\\n";
            return;
        case '\r':
            out += "\\r";
            return;
        case '\t':
            out += "\\t";
            return;
        default:
            out += "\\u00";
            out += kHex[byte >> 4];
            out += kHex[byte & 15];
    }
}

void append_json(std::string& out, const boost::json::value& value) {
    switch (value.kind()) {
        case boost::json::kind::null:
            out += "null";
            return;
        case boost::json::kind::bool_:
            out += value.get_bool() ? "true" : "false";
            return;
        case boost::json::kind::int64:
            return append_json_number(out, value.get_int64());
        case boost::json::kind::uint64:
            out += std::to_string(value.get_uint64());
            return;
        case boost::json::kind::double_:
            if (std::isfinite(value.get_double())) return append_json_number(out, value.get_double());
            out += value.get_double() < 0 ? "-1e999" : "1e999";
            return;
        case boost::json::kind::string:
            return append_json_string(out, {value.get_string().data(), value.get_string().size()});
        case boost::json::kind::array:
            out += '[';
            for (const auto& item : value.get_array()) {
                if (out.back() != '[') out += ',';
                append_json(out, item);
            }
            out += ']';
            return;
        case boost::json::kind::object:
            out += '{';
            for (const auto& [key, item] : value.get_object()) {
                if (out.back() != '{') out += ',';
                append_json_string(out, {key.data(), key.size()});
                out += ':';
                append_json(out, item);
            }
            out += '}';
            return;
    }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    std::size_t plain = 0;  // start of the run that needs no change
    std::size_t at = 0;
    const auto flush = [&] { out.append(text, plain, at - plain); };
    while (at < text.size()) {
        const auto byte = static_cast<unsigned char>(text[at]);
        if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') {
            ++at;
        } else if (byte < 0x80) {
            flush();
            append_escaped(out, byte);
            plain = ++at;
        } else if (const std::size_t bytes = character_bytes(text.substr(at))) {
            at += bytes;
        } else {
            flush();
            out += kReplacement;
            plain = ++at;
        }
    }
    flush();
    out += '"';
}

void append_json_number(std::string& out, std::int64_t number) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    out.append(digits.data(), end);
}

void append_json_number(std::string& out, double number) {
    if (!std::isfinite(number)) number = 0;
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
    out.append(text);
    // Whole numbers keep a point, so that typed clients read the kind they expect.
    if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

std::string to_json(const boost::json::value& value) {
    std::string out;
    append_json(out, value);
    return out;
}

std::string lossy_utf8(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::size_t bytes = character_bytes(text);
        out += bytes == 0 ? kReplacement : text.substr(0, bytes);
        text.remove_prefix(bytes == 0 ? 1 : bytes);
    }
    return out;
}

std::size_t utf8_length(std::string_view text) {
    std::size_t characters = 0;
    for (const char c : text)
        if (!is_continuation(static_cast<unsigned char>(c))) ++characters;
    return characters;
}

}  // namespace attune
