#include "engine/module/json_text.hpp"

#include <algorithm>

namespace attune {
namespace {

constexpr int kMaxDepth = 64;

// Depth outside strings, before a document is built from it.
int depth_of(std::span<const std::byte> text) {
    int depth = 0;
    int deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = static_cast<char>(text[i]);
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            deepest = std::max(deepest, ++depth);
        } else if (c == '}' || c == ']') {
            --depth;
        }
    }
    return deepest;
}

}  // namespace

Result<OrderedJson> parse_json_object(std::span<const std::byte> text, const std::string& file_name) {
    if (depth_of(text) > kMaxDepth) return make_error(Errc::invalid_module, file_name + " is nested too deeply");
    const auto* begin = reinterpret_cast<const char*>(text.data());
    auto json = OrderedJson::parse(begin, begin + text.size(), nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return make_error(Errc::invalid_module, file_name + " is not valid JSON");
    if (!json.is_object()) return make_error(Errc::invalid_module, file_name + " does not hold a JSON object");
    return json;
}

const OrderedJson& member(const OrderedJson& object, const char* key) {
    static const OrderedJson kNull;
    const auto at = object.find(key);
    return at == object.end() ? kNull : *at;
}

bool is_empty(const OrderedJson& value) {
    return value.is_null() || value == false || value == "" ||
           ((value.is_array() || value.is_object()) && value.empty());
}

std::string short_text(const OrderedJson& value) {
    std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
    if (text.size() > 80) text = text.substr(0, 77) + "...";
    return text;
}

}  // namespace attune
