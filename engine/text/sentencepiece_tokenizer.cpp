#include "engine/text/sentencepiece_tokenizer.hpp"

#include "engine/text/config_tokens.hpp"

#include <sentencepiece_processor.h>
#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;
using sentencepiece::SentencePieceProcessor;

class SentencePieceModel final : public TokenModel {
public:
    /// `later` encodes text that does not begin the whole text; null: the same as `first`.
    SentencePieceModel(std::unique_ptr<const SentencePieceProcessor> first,
                       std::unique_ptr<const SentencePieceProcessor> later)
        : first_(std::move(first)), later_(std::move(later)) {}

    void encode(std::string_view piece, bool /*raw_bytes*/, std::vector<TokenId>& ids) const override {
        append(later_ ? *later_ : *first_, piece, ids);
    }
    void encode_first(std::string_view piece, bool /*raw_bytes*/, std::vector<TokenId>& ids) const override {
        append(*first_, piece, ids);
    }
    std::optional<TokenId> id_of(std::string_view token) const override {
        const int id = first_->PieceToId({token.data(), token.size()});
        // What is not there has the id of <unk>.
        return text_of(id) == token ? std::optional<TokenId>(id) : std::nullopt;
    }
    std::string_view text_of(TokenId id) const override {
        if (id < 0 || id >= first_->GetPieceSize()) return {};
        return first_->IdToPiece(id);
    }
    int id_limit() const override { return first_->GetPieceSize(); }
    TokenId unknown_id() const override { return first_->unk_id(); }

    bool is_special(TokenId id) const { return first_->IsControl(id) || first_->IsUnknown(id); }
    TokenId bos() const { return first_->bos_id(); }
    TokenId eos() const { return first_->eos_id(); }

private:
    static void append(const SentencePieceProcessor& processor, std::string_view text, std::vector<TokenId>& ids) {
        std::vector<int> found;
        if (!processor.Encode({text.data(), text.size()}, &found).ok()) return;
        ids.insert(ids.end(), found.begin(), found.end());
    }

    std::unique_ptr<const SentencePieceProcessor> first_;
    std::unique_ptr<const SentencePieceProcessor> later_;
};

Result<std::unique_ptr<const SentencePieceProcessor>> load(const std::string& bytes) {
    auto processor = std::make_unique<SentencePieceProcessor>();
    if (!processor->LoadFromSerializedProto(bytes).ok() || processor->GetPieceSize() == 0) {
        return make_error(Errc::invalid_argument, "tokenizer.model is no SentencePiece model");
    }
    return Result<std::unique_ptr<const SentencePieceProcessor>>(std::move(processor));
}

bool puts_space_first(const SentencePieceProcessor& processor) {
    std::vector<std::string> pieces;
    return processor.Encode("a", &pieces).ok() && !pieces.empty() && pieces.front().starts_with("\u2581");
}

Result<std::unique_ptr<const Decoder>> decoder(bool drops_first_space) {
    json steps = {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                  {{"type", "ByteFallback"}},
                  {{"type", "Fuse"}}};
    if (drops_first_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return Decoder::parse({{"type", "Sequence"}, {"decoders", std::move(steps)}});
}

}  // namespace

Result<TokenizerParts> parts_of_sentencepiece(std::string_view bytes, std::string_view config_text) {
    json config = json::object();
    bool is_legacy = true;
    bool adds_bos = true;
    bool adds_eos = false;
    try {
        if (!config_text.empty()) config = json::parse(config_text);
        const auto flag = [&config](const char* key, bool otherwise) {
            const auto found = config.find(key);
            return found != config.end() && found->is_boolean() ? found->get<bool>() : otherwise;
        };
        is_legacy = flag("legacy", true);
        adds_bos = flag("add_bos_token", true);
        adds_eos = flag("add_eos_token", false);
    } catch (const json::exception& error) {
        return make_error(Errc::invalid_argument, std::string("tokenizer_config.json: ") + error.what());
    }
    auto first = load(std::string(bytes));
    if (!first) return first.error();
    const bool has_prefix = puts_space_first(**first);
    std::unique_ptr<const SentencePieceProcessor> later;
    if (has_prefix && !is_legacy) {
        // One more field at the end overrides: normalizer_spec (3) { add_dummy_prefix (3): false }.
        auto loaded = load(std::string(bytes) + std::string("\x1A\x02\x18\x00", 4));
        if (!loaded) return loaded.error();
        later = std::move(*loaded);
    }
    auto model = std::make_unique<SentencePieceModel>(std::move(*first), std::move(later));
    TokenizerParts parts;
    auto listed = config_tokens(config_text);
    if (!listed) return listed.error();
    for (auto& [id, token] : *listed) {
        const auto known = model->id_of(token.content);
        if (known.value_or(id) != id || (!known && id < model->id_limit())) {
            return make_error(Errc::invalid_argument, "tokenizer_config.json: added token \"" + token.content +
                                                          "\" cannot have id " + std::to_string(id) +
                                                          ": tokenizer.model says otherwise");
        }
        parts.added.push_back(std::move(token));
    }
    for (TokenId id = 0; id < model->id_limit(); ++id) {
        if (!model->is_special(id) || listed->contains(id)) continue;
        AddedToken token;
        token.id = id;
        token.content = model->text_of(id);
        token.special = true;
        parts.added.push_back(std::move(token));
    }
    if (adds_bos && model->bos() >= 0) parts.post_processor.before = {model->bos()};
    if (adds_eos && model->eos() >= 0) parts.post_processor.after = {model->eos()};
    parts.model = std::move(model);
    auto made = decoder(has_prefix);
    if (!made) return made.error();
    parts.decoder = std::move(*made);
    return parts;
}

}  // namespace attune
