#include "actors/names.hpp"

#include <utf8proc.h>

#include <cstdlib>
#include <string>

namespace attune {
namespace {

enum class NameChar { first, inside, refused };

NameChar classify(utf8proc_int32_t character) {
    if (character == '.' || character == '_' || character == '-') return NameChar::inside;
    switch (utf8proc_category(character)) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_ND:
            return NameChar::first;
        // Vowel signs and the like: Devanagari or Thai names cannot be written without them.
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
            return NameChar::inside;
        default:
            return NameChar::refused;
    }
}

bool is_nfc(const std::string& text) {
    // NFC() wants a terminated string; NUL itself never passes classify().
    utf8proc_uint8_t* composed = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    if (!composed) return false;
    const bool same = text == reinterpret_cast<const char*>(composed);
    std::free(composed);
    return same;
}

}  // namespace

Result<void> check_module_name(std::string_view name, std::string_view base_id) {
    const auto refuse = [](std::string why) { return make_error(Errc::invalid_argument, std::move(why), "name"); };
    if (name == "auto") return refuse("`auto` is the router's word and cannot name a module");
    if (name == base_id) return refuse("the base's id cannot name a module");
    constexpr int kMaxCharacters = 128;
    const std::string rule =
        "a module's name is 1 to 128 letters and digits (in composed form), with `.`, `_` and `-` inside";
    int characters = 0;
    bool ends_inside = true;
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(name.data());
    auto left = static_cast<utf8proc_ssize_t>(name.size());
    while (left > 0) {
        utf8proc_int32_t character = 0;
        const utf8proc_ssize_t bytes = utf8proc_iterate(at, left, &character);
        if (bytes <= 0 || ++characters > kMaxCharacters) return refuse(rule);
        const NameChar kind = classify(character);
        if (kind == NameChar::refused || (kind == NameChar::inside && characters == 1)) return refuse(rule);
        ends_inside = character == '.' || character == '_' || character == '-';
        at += bytes;
        left -= bytes;
    }
    if (characters == 0 || ends_inside || !is_nfc(std::string(name))) return refuse(rule);
    return {};
}

}  // namespace attune
