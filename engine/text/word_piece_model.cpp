#include "engine/text/word_piece_model.hpp"

#include "engine/text/byte_alphabet.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>

namespace attune {

Result<WordPieceModel> WordPieceModel::build(WordPieceConfig config) {
    WordPieceModel model;
    for (auto& [token, id] : config.vocabulary) {
        if (id < 0 || id > 16'000'000) {
            return make_error(Errc::invalid_argument, "tokenizer.json: the id of \"" + token + "\" is out of range");
        }
        const auto at = static_cast<std::size_t>(id);
        if (at >= model.texts_.size()) model.texts_.resize(at + 1);
        if (!token.empty()) model.all_.insert(token, id);
        if (token.size() > config.continuing_prefix.size() && token.starts_with(config.continuing_prefix)) {
            model.continuing_.insert(std::string_view(token).substr(config.continuing_prefix.size()), id);
        }
        model.texts_[at] = std::move(token);
    }
    const auto unknown = model.all_.find(config.unknown_token);
    if (!unknown) {
        return make_error(Errc::invalid_argument,
                          "tokenizer.json: unk_token \"" + config.unknown_token + "\" is not in the vocabulary");
    }
    model.unknown_id_ = *unknown;
    model.longest_word_ = config.longest_word;
    return model;
}

std::optional<TokenId> WordPieceModel::id_of(std::string_view token) const { return all_.find(token); }

std::string_view WordPieceModel::text_of(TokenId id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= texts_.size()) return {};
    return texts_[static_cast<std::size_t>(id)];
}

void WordPieceModel::encode(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const {
    if (piece.empty()) return;
    std::string mapped;
    if (raw_bytes) {
        for (const char byte : piece) mapped += byte_characters()[static_cast<unsigned char>(byte)];
        piece = mapped;
    }
    const std::size_t first = ids.size();
    if (count_code_points(piece) <= longest_word_ && encode_word(piece, ids)) return;
    ids.resize(first);
    ids.push_back(unknown_id_);
}

bool WordPieceModel::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
    for (std::size_t at = 0; at < word.size();) {
        std::size_t longest = 0;
        TokenId best = 0;
        (at == 0 ? all_ : continuing_).for_each_prefix(word.substr(at), [&](std::size_t bytes, std::int32_t id) {
            longest = bytes;
            best = id;
        });
        if (longest == 0) return false;
        ids.push_back(best);
        at += longest;
    }
    return true;
}

}  // namespace attune
