#include "engine/text/config_tokens.hpp"

#include <nlohmann/json.hpp>

#include <charconv>
#include <string>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

constexpr TokenId kLargestId = 16'000'000;

}  // namespace

// {"32000": {"content": "<x>", "special": true, ...}, ...}
Result<std::map<TokenId, AddedToken>> config_tokens(std::string_view text) {
    std::map<TokenId, AddedToken> listed;
    if (text.empty()) return listed;
    try {
        const json config = json::parse(text);
        const auto found = config.find("added_tokens_decoder");
        if (found == config.end() || !found->is_object()) return listed;
        for (const auto& [key, value] : found->items()) {
            AddedToken token;
            const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), token.id);
            if (failed != std::errc() || end != key.data() + key.size()) {
                return make_error(Errc::invalid_argument,
                                  "tokenizer_config.json: \"" + key + "\" in added_tokens_decoder is no token id");
            }
            token.content = value.at("content").get<std::string>();
            token.single_word = value.value("single_word", false);
            token.lstrip = value.value("lstrip", false);
            token.rstrip = value.value("rstrip", false);
            token.special = value.value("special", false);
            token.normalized = value.value("normalized", !token.special);
            listed.emplace(token.id, std::move(token));
        }
    } catch (const json::exception& error) {
        return make_error(Errc::invalid_argument, std::string("tokenizer_config.json: ") + error.what());
    }
    return listed;
}

Result<void> check_added_ids(const std::vector<AddedToken>& added) {
    for (const AddedToken& token : added) {
        if (token.id < 0 || token.id > kLargestId) {
            return make_error(Errc::invalid_argument,
                              "tokenizer: the id of added token \"" + token.content + "\" is out of range");
        }
    }
    return {};
}

}  // namespace attune
