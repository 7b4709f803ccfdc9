#include "engine/text/gguf_tokenizer.hpp"

#include "engine/files/quote.hpp"
#include "engine/text/bpe_model.hpp"
#include "engine/text/gguf_split.hpp"
#include "engine/text/scored_merges.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <unordered_set>

namespace attune {
namespace {

using nlohmann::json;

/// tokenizer.ggml.token_type, numbered as in llama.cpp.
enum class TokenType : std::uint64_t { undefined, normal, unknown, control, user_defined, unused, byte };

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";

/// Ids that name special tokens, and what chat templates call them. The first four are special whatever their type
/// says; others are often left at 0, so their types decide.
constexpr std::size_t kAlwaysSpecial = 4;
constexpr std::array<std::pair<const char*, const char*>, 9> kNamedIds = {{
    {"tokenizer.ggml.bos_token_id", "bos_token"},
    {"tokenizer.ggml.eos_token_id", "eos_token"},
    {"tokenizer.ggml.eot_token_id", "eot_token"},
    {"tokenizer.ggml.eom_token_id", "eom_token"},
    {"tokenizer.ggml.unknown_token_id", "unk_token"},
    {"tokenizer.ggml.seperator_token_id", "sep_token"},  // spelled so in the format
    {"tokenizer.ggml.padding_token_id", "pad_token"},
    {"tokenizer.ggml.cls_token_id", "cls_token"},
    {"tokenizer.ggml.mask_token_id", "mask_token"},
}};

class Reader {
public:
    explicit Reader(const GgufHeader& header) : header_(header) {}

    Result<void> read_vocabulary() {
        auto tokens = header_.array(kTokens, GgufType::string);
        if (!tokens) return tokens.error();
        if (*tokens == nullptr || (*tokens)->strings.empty()) return wrong(kTokens, "is missing or empty");
        tokens_ = *tokens;
        auto types = header_.array(kTypes, GgufType::i32);
        if (!types) return types.error();
        types_ = *types;
        if (types_ != nullptr && types_->integers.size() != count()) {
            return wrong(kTypes, "has " + std::to_string(types_->integers.size()) + " entries for " +
                                     std::to_string(count()) + " tokens");
        }
        for (std::size_t i = 0; i < kNamedIds.size(); ++i) {
            auto id = token_id(kNamedIds[i].first);
            if (!id) return id.error();
            if (*id && (i < kAlwaysSpecial || types_ == nullptr)) named_.insert(**id);
        }
        return {};
    }

    /// Byte-level BPE.
    Result<TokenizerParts> byte_level() {
        auto pre = header_.text("tokenizer.ggml.pre");
        if (!pre) return pre.error();
        const std::string name = pre->value_or("default");
        const auto split = gguf_split(name);
        if (!split) {
            return make_error(Errc::unsupported, header_.file_name + ": tokenizer.ggml.pre " + in_quotes(name) +
                                                     " is a way to split text that is not known here");
        }
        BpeConfig config = plain_vocabulary();
        config.ignore_merges = split->ignore_merges;
        if (auto read = read_merges(config); !read) return read.error();
        const json decoder = {{"type", "ByteLevel"}};
        return assemble(std::move(config), split->normalizer, split->pre_tokenizer, decoder, split->adds_bos);
    }

    /// SentencePiece's BPE: the pair whose joined piece scores best is merged first.
    Result<TokenizerParts> scored() {
        constexpr const char* kScores = "tokenizer.ggml.scores";
        auto scores = header_.array(kScores, GgufType::f32);
        if (!scores) return scores.error();
        if (*scores == nullptr || (*scores)->reals.size() != count()) {
            return wrong(kScores, "must have one entry for each token");
        }
        BpeConfig config = plain_vocabulary();
        std::vector<ScoredPiece> pieces;
        for (std::size_t i = 0; i < count(); ++i) {
            const TokenType type = type_of(i);
            if (type == TokenType::normal || type == TokenType::unused) {
                pieces.push_back({tokens_->strings[i], (*scores)->reals[i]});
            }
        }
        add_scored_merges(pieces, config);
        config.byte_fallback = true;
        config.fuse_unknown = true;
        auto unknown = token_id("tokenizer.ggml.unknown_token_id");
        if (!unknown) return unknown.error();
        if (*unknown) {
            config.unknown_token = text_of(**unknown);
            config.vocabulary.emplace_back(config.unknown_token, **unknown);
        }
        auto prefix = header_.boolean("tokenizer.ggml.add_space_prefix");
        if (!prefix) return prefix.error();
        auto normalizer = scored_normalizer(prefix->value_or(true));
        if (!normalizer) return normalizer.error();
        json steps = {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                      {{"type", "ByteFallback"}},
                      {{"type", "Fuse"}}};
        if (prefix->value_or(true)) {
            steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
        }
        return assemble(std::move(config), *normalizer, nullptr, {{"type", "Sequence"}, {"decoders", steps}},
                        /*adds_bos=*/true);
    }

private:
    std::size_t count() const { return tokens_->strings.size(); }
    const std::string& text_of(TokenId id) const { return tokens_->strings[static_cast<std::size_t>(id)]; }
    Error wrong(const char* key, const std::string& what) const {
        return make_error(Errc::invalid_argument, header_.file_name + ": " + key + " " + what);
    }

    TokenType type_of(std::size_t token) const {
        if (types_ == nullptr) return TokenType::normal;
        const std::uint64_t type = types_->integers[token];
        return type <= static_cast<std::uint64_t>(TokenType::byte) ? static_cast<TokenType>(type) : TokenType::normal;
    }
    bool is_special(std::size_t token) const {
        const TokenType type = type_of(token);
        return type == TokenType::control || type == TokenType::unknown || named_.contains(static_cast<TokenId>(token));
    }

    Result<std::optional<TokenId>> token_id(const char* key) const {
        auto id = header_.integer(key);
        if (!id) return id.error();
        if (!*id) return std::optional<TokenId>();
        if (**id < 0 || static_cast<std::uint64_t>(**id) >= count()) {
            return wrong(key,
                         "is " + std::to_string(**id) + ", the vocabulary has " + std::to_string(count()) + " tokens");
        }
        return std::optional<TokenId>(static_cast<TokenId>(**id));
    }

    /// All but special tokens: those are never made from text, only matched as added tokens.
    BpeConfig plain_vocabulary() const {
        BpeConfig config;
        for (std::size_t i = 0; i < count(); ++i) {
            if (!is_special(i)) config.vocabulary.emplace_back(tokens_->strings[i], static_cast<TokenId>(i));
        }
        return config;
    }

    Result<void> read_merges(BpeConfig& config) const {
        constexpr const char* kMerges = "tokenizer.ggml.merges";
        config.origin = header_.file_name + ": " + kMerges;
        auto merges = header_.array(kMerges, GgufType::string);
        if (!merges) return merges.error();
        if (*merges == nullptr) return {};
        std::unordered_set<std::string_view> special;
        for (std::size_t i = 0; i < count(); ++i) {
            if (is_special(i)) special.insert(tokens_->strings[i]);
        }
        for (const std::string& merge : (*merges)->strings) {
            const std::size_t space = merge.find(' ', 1);
            if (space == std::string::npos || space + 1 == merge.size()) {
                return wrong(kMerges, "has " + in_quotes(merge) + ", which is no pair of tokens");
            }
            std::string left = merge.substr(0, space);
            std::string right = merge.substr(space + 1);
            // A merge that would make a special token out of text is left out, as is one that starts from it.
            if (special.contains(left + right) || special.contains(left) || special.contains(right)) continue;
            config.merges.emplace_back(std::move(left), std::move(right));
        }
        return {};
    }

    Result<json> scored_normalizer(bool space_prefix) const {
        json steps = json::array();
        auto charsmap = header_.array("tokenizer.ggml.precompiled_charsmap", GgufType::u8);
        if (!charsmap) return charsmap.error();
        if (*charsmap != nullptr && (*charsmap)->size() > 0) {
            std::vector<std::uint8_t> bytes;
            for (const std::uint64_t byte : (*charsmap)->integers) bytes.push_back(static_cast<std::uint8_t>(byte));
            steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", json::binary(std::move(bytes))}});
        }
        auto collapse = header_.boolean("tokenizer.ggml.remove_extra_whitespaces");
        if (!collapse) return collapse.error();
        if (collapse->value_or(false)) {
            steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
            steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
        }
        if (space_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
        steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}});
        return json{{"type", "Sequence"}, {"normalizers", std::move(steps)}};
    }

    Result<void> add_around(const char* flag_key, const char* id_key, bool otherwise, std::vector<TokenId>& ids) const {
        auto wanted = header_.boolean(flag_key);
        if (!wanted) return wanted.error();
        auto id = token_id(id_key);
        if (!id) return id.error();
        if (wanted->value_or(false) && !*id)
            return wrong(flag_key, "is true, but " + std::string(id_key) + " is missing");
        if (wanted->value_or(otherwise) && *id) ids.push_back(**id);
        return {};
    }

    Result<TokenizerParts> assemble(BpeConfig config, const json& normalizer, const json& pre_tokenizer,
                                    const json& decoder, bool adds_bos) const {
        TokenizerParts parts;
        auto model = BpeModel::build(std::move(config));
        if (!model) return model.error();
        parts.model = std::make_unique<BpeModel>(std::move(*model));
        if (auto made = parts.parse_steps(normalizer, pre_tokenizer, decoder); !made) return made.error();
        for (std::size_t i = 0; i < count(); ++i) {
            if (!is_special(i) && type_of(i) != TokenType::user_defined) continue;
            AddedToken token;
            token.id = static_cast<TokenId>(i);
            token.content = tokens_->strings[i];
            token.special = is_special(i);
            parts.added.push_back(std::move(token));
        }
        if (auto added = add_around("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", adds_bos,
                                    parts.post_processor.before);
            !added) {
            return added.error();
        }
        if (auto added = add_around("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false,
                                    parts.post_processor.after);
            !added) {
            return added.error();
        }
        return parts;
    }

    const GgufHeader& header_;
    const GgufArray* tokens_ = nullptr;
    const GgufArray* types_ = nullptr;  // null: all normal
    std::set<TokenId> named_;
};

}  // namespace

Result<TokenizerParts> parts_of_gguf(const GgufHeader& header) {
    constexpr const char* kModel = "tokenizer.ggml.model";
    auto model = header.text(kModel);
    if (!model) return model.error();
    if (!*model) return make_error(Errc::not_found, header.file_name + " has no " + kModel);
    if (**model != "gpt2" && **model != "llama") {
        return make_error(Errc::unsupported,
                          header.file_name + ": " + kModel + " " + in_quotes(**model) + " is not supported");
    }
    Reader reader(header);
    if (auto read = reader.read_vocabulary(); !read) return read.error();
    return **model == "gpt2" ? reader.byte_level() : reader.scored();
}

Result<std::vector<std::pair<std::string, std::string>>> named_tokens_of_gguf(const GgufHeader& header) {
    std::vector<std::pair<std::string, std::string>> named;
    auto tokens = header.array(kTokens, GgufType::string);
    if (!tokens) return tokens.error();
    for (const auto& [key, name] : kNamedIds) {
        auto id = header.integer(key);
        if (!id) return id.error();
        if (!*id || *tokens == nullptr) continue;
        if (**id < 0 || static_cast<std::uint64_t>(**id) >= (*tokens)->strings.size()) {
            return make_error(Errc::invalid_argument, header.file_name + ": " + key + " is out of the vocabulary");
        }
        named.emplace_back(name, (*tokens)->strings[static_cast<std::size_t>(**id)]);
    }
    return named;
}

}  // namespace attune
