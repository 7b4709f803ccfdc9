#include "actors/names.hpp"

#include "engine/text/unicode.hpp"

#include <string>

namespace attune {
namespace {

enum class NameChar { first, inside, refused };

NameChar classify(char32_t character) {
    if (character == U'.' || character == U'_' || character == U'-') return NameChar::inside;
    // Of the numbers only digits are parts of words: no fractions, no circled ones.
    if (is_letter(character) || (is_numeric(character) && is_word_character(character))) return NameChar::first;
    // Vowel signs and the like: Devanagari or Thai names cannot be written without them.
    return is_mark(character) ? NameChar::inside : NameChar::refused;
}

}  // namespace

Result<void> check_module_name(std::string_view name, std::string_view base_id) {
    const auto refuse = [](std::string why) { return make_error(Errc::invalid_argument, std::move(why), "name"); };
    if (name == "auto") return refuse("`auto` is the router's word and cannot name a module");
    if (name == base_id) return refuse("the base's id cannot name a module");
    constexpr int kMaxCharacters = 128;
    const std::string rule =
        "a module's name is 1 to 128 letters and digits (in composed form), with `.`, `_` and `-` inside";
    if (!is_valid_utf8(name) || normalize(name, NormalForm::nfc) != name) return refuse(rule);
    int characters = 0;
    bool ends_inside = true;
    for (std::size_t at = 0; at < name.size();) {
        const CodePoint character = code_point_at(name, at);
        if (++characters > kMaxCharacters) return refuse(rule);
        const NameChar kind = classify(character.value);
        if (kind == NameChar::refused || (kind == NameChar::inside && characters == 1)) return refuse(rule);
        ends_inside = character.value == U'.' || character.value == U'_' || character.value == U'-';
        at += character.bytes;
    }
    if (characters == 0 || ends_inside) return refuse(rule);
    return {};
}

std::string module_name(std::string_view asked) { return normalize(asked, NormalForm::nfc); }

}  // namespace attune
