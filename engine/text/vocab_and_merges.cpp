#include "engine/text/vocab_and_merges.hpp"

#include "engine/text/bpe_model.hpp"
#include "engine/text/config_tokens.hpp"
#include "engine/text/gguf_split.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

Result<std::string> split_name(std::string_view config_text) {
    std::string name;
    if (!config_text.empty()) {
        const json config = json::parse(config_text);
        const auto found = config.find("tokenizer_class");
        if (found != config.end() && found->is_string()) name = found->get<std::string>();
    }
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    if (name == "GPT2Tokenizer") return std::string("gpt-2");
    if (name == "Qwen2Tokenizer") return std::string("qwen2");
    return make_error(Errc::unsupported,
                      "the model folder has vocab.json and merges.txt, which do not say how text is "
                      "split, and tokenizer_class \"" +
                          name + "\" is not known; a tokenizer.json is needed");
}

Result<BpeConfig> read_vocabulary(std::string_view vocab, std::string_view merges) {
    BpeConfig config;
    config.origin = "merges.txt";
    const json ids = json::parse(vocab);
    for (const auto& [token, id] : ids.items()) config.vocabulary.emplace_back(token, id.get<TokenId>());
    while (!merges.empty()) {
        const std::size_t end = std::min(merges.find('\n'), merges.size());
        std::string_view line = merges.substr(0, end);
        merges.remove_prefix(std::min(end + 1, merges.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || (config.merges.empty() && line.starts_with("#version"))) continue;
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos) {
            return make_error(Errc::invalid_argument, "merges.txt: \"" + std::string(line) + "\" is no pair of tokens");
        }
        config.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    return config;
}

}  // namespace

Result<TokenizerParts> parts_of_vocab_and_merges(std::string_view vocab, std::string_view merges,
                                                 std::string_view config_text) {
    TokenizerParts parts;
    try {
        const auto name = split_name(config_text);
        if (!name) return name.error();
        auto config = read_vocabulary(vocab, merges);
        if (!config) return config.error();
        auto model = BpeModel::build(std::move(*config));
        if (!model) return model.error();
        parts.model = std::make_unique<BpeModel>(std::move(*model));
        const auto split = gguf_split(*name);
        if (auto made = parts.parse_steps(split->normalizer, split->pre_tokenizer, {{"type", "ByteLevel"}}); !made)
            return made.error();
    } catch (const json::exception& error) {
        return make_error(Errc::invalid_argument, std::string("vocab.json: ") + error.what());
    }
    auto listed = config_tokens(config_text);
    if (!listed) return listed.error();
    for (auto& [id, token] : *listed) parts.added.push_back(std::move(token));
    if (auto checked = check_added_ids(parts.added); !checked) return checked.error();
    return parts;
}

}  // namespace attune
