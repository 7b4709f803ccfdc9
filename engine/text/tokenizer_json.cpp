#include "engine/text/bpe_model.hpp"
#include "engine/text/tokenizer_file.hpp"
#include "engine/text/tokenizer_parts.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

constexpr TokenId kLargestId = 16'000'000;

Result<std::unique_ptr<const TokenModel>> model_of(TokenizerFile& file) {
    using Built = Result<std::unique_ptr<const TokenModel>>;
    auto bpe = BpeModel::build(std::move(file.model));
    if (!bpe) return bpe.error();
    return Built(std::make_unique<BpeModel>(std::move(*bpe)));
}

/// added_tokens_decoder: {"32000": {"content": "<x>", "special": true, ...}, ...}
Result<std::map<TokenId, AddedToken>> listed_in_config(std::string_view text) {
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

/// Tokens that only tokenizer_config.json knows. One that both files list is as tokenizer.json has it.
Result<void> add_tokens_of_config(std::string_view config, const TokenModel& model, std::vector<AddedToken>& added) {
    auto listed = listed_in_config(config);
    if (!listed) return listed.error();
    for (auto& [id, token] : *listed) {
        const auto same = std::find_if(added.begin(), added.end(),
                                       [&](const AddedToken& one) { return one.content == token.content; });
        if (same != added.end() || model.id_of(token.content) == id) {
            if (same == added.end()) added.push_back(std::move(token));
            continue;
        }
        const auto other =
            std::find_if(added.begin(), added.end(), [id = id](const AddedToken& one) { return one.id == id; });
        if (other != added.end() || !model.text_of(id).empty() || model.id_of(token.content)) {
            return make_error(Errc::invalid_argument, "tokenizer_config.json: added token \"" + token.content +
                                                          "\" cannot have id " + std::to_string(id) +
                                                          ": tokenizer.json says otherwise");
        }
        added.push_back(std::move(token));
    }
    return {};
}

Result<void> check_ids(const std::vector<AddedToken>& added) {
    for (const AddedToken& token : added) {
        if (token.id < 0 || token.id > kLargestId) {
            return make_error(Errc::invalid_argument,
                              "tokenizer: the id of added token \"" + token.content + "\" is out of range");
        }
    }
    return {};
}

}  // namespace

Result<TokenizerParts> parts_of_tokenizer_json(std::string_view text, std::string_view config) {
    auto file = TokenizerFile::parse(text);
    if (!file) return file.error();
    TokenizerParts parts;
    auto model = model_of(*file);
    if (!model) return model.error();
    parts.model = std::move(*model);
    const auto part = [&](const char* name) {
        const auto found = file->rest.find(name);
        return found == file->rest.end() ? json() : *found;
    };
    try {
        auto normalizer = Normalizer::parse(part("normalizer"));
        if (!normalizer) return normalizer.error();
        parts.normalizer = std::move(*normalizer);
        auto pre_tokenizer = PreTokenizer::parse(part("pre_tokenizer"));
        if (!pre_tokenizer) return pre_tokenizer.error();
        parts.pre_tokenizer = std::move(*pre_tokenizer);
        auto decoder = Decoder::parse(part("decoder"));
        if (!decoder) return decoder.error();
        parts.decoder = std::move(*decoder);
        auto post_processor = PostProcessor::parse(part("post_processor"));
        if (!post_processor) return post_processor.error();
        parts.post_processor = std::move(*post_processor);
    } catch (const json::exception& error) {
        return make_error(Errc::invalid_argument, std::string("tokenizer.json: ") + error.what());
    }
    parts.added = std::move(file->added);
    if (auto added = add_tokens_of_config(config, *parts.model, parts.added); !added) return added.error();
    if (auto checked = check_ids(parts.added); !checked) return checked.error();
    return parts;
}

}  // namespace attune
