#include "engine/text/bpe_model.hpp"
#include "engine/text/config_tokens.hpp"
#include "engine/text/tokenizer_file.hpp"
#include "engine/text/tokenizer_parts.hpp"
#include "engine/text/unigram_model.hpp"
#include "engine/text/word_piece_model.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

using Built = Result<std::unique_ptr<const TokenModel>>;

template <class Model, class Config>
Built built(Config config) {
    auto model = Model::build(std::move(config));
    if (!model) return model.error();
    return Built(std::make_unique<Model>(std::move(*model)));
}

Built unigram_of(TokenizerFile& file, const json& model) {
    UnigramConfig config;
    for (std::size_t i = 0; i < file.scores.size(); ++i) {
        config.pieces.emplace_back(std::move(file.model.vocabulary[i].first), file.scores[i]);
    }
    const auto unknown = model.find("unk_id");
    if (unknown != model.end() && !unknown->is_null()) config.unknown_id = unknown->get<TokenId>();
    config.byte_fallback = file.model.byte_fallback;
    return built<UnigramModel>(std::move(config));
}

Built word_piece_of(TokenizerFile& file, const json& model) {
    WordPieceConfig config;
    config.vocabulary = std::move(file.model.vocabulary);
    config.unknown_token = model.value("unk_token", config.unknown_token);
    config.continuing_prefix = model.value("continuing_subword_prefix", config.continuing_prefix);
    config.longest_word = model.value("max_input_chars_per_word", config.longest_word);
    return built<WordPieceModel>(std::move(config));
}

Built model_of(TokenizerFile& file) {
    const json& model = file.rest.at("model");
    const std::string type = model.value("type", std::string());
    if (type == "Unigram") return unigram_of(file, model);
    if (type == "WordPiece") return word_piece_of(file, model);
    return built<BpeModel>(std::move(file.model));
}

/// Tokens that only tokenizer_config.json knows. One that both files list is as tokenizer.json has it.
Result<void> add_tokens_of_config(std::string_view config, const TokenModel& model, std::vector<AddedToken>& added) {
    auto listed = config_tokens(config);
    if (!listed) return listed.error();
    for (auto& [id, token] : *listed) {
        const auto same = std::find_if(added.begin(), added.end(), [&token = token](const AddedToken& one) {
            return one.content == token.content;
        });
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

/// A model has no row for what is beyond its vocabulary.
Result<void> check_post_processor(const TokenizerParts& parts) {
    int limit = parts.model->id_limit();
    for (const AddedToken& token : parts.added) {
        if (!token.content.empty()) limit = std::max(limit, parts.model->id_of(token.content).value_or(token.id) + 1);
    }
    for (const std::vector<TokenId>* ids : {&parts.post_processor.before, &parts.post_processor.after}) {
        for (const TokenId id : *ids) {
            if (id >= 0 && id < limit) continue;
            return make_error(Errc::invalid_argument, "tokenizer.json: the post_processor adds token " +
                                                          std::to_string(id) + ", the vocabulary has " +
                                                          std::to_string(limit) + " tokens");
        }
    }
    return {};
}

}  // namespace

Result<TokenizerParts> parts_of_tokenizer_json(std::string_view text, std::string_view config) {
    auto file = TokenizerFile::parse(text);
    if (!file) return file.error();
    TokenizerParts parts;
    const auto part = [&](const char* name) {
        const auto found = file->rest.find(name);
        return found == file->rest.end() ? json() : *found;
    };
    try {
        auto model = model_of(*file);
        if (!model) return model.error();
        parts.model = std::move(*model);
        if (auto made = parts.parse_steps(part("normalizer"), part("pre_tokenizer"), part("decoder")); !made)
            return made.error();
        auto post_processor = PostProcessor::parse(part("post_processor"));
        if (!post_processor) return post_processor.error();
        parts.post_processor = std::move(*post_processor);
    } catch (const json::exception& error) {
        return make_error(Errc::invalid_argument, std::string("tokenizer.json: ") + error.what());
    }
    parts.added = std::move(file->added);
    if (auto added = add_tokens_of_config(config, *parts.model, parts.added); !added) return added.error();
    if (auto checked = check_added_ids(parts.added); !checked) return checked.error();
    if (auto checked = check_post_processor(parts); !checked) return checked.error();
    return parts;
}

}  // namespace attune
