#include "engine/text/unigram_model.hpp"

#include "engine/text/byte_alphabet.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attune {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr std::uint32_t kUnreached = std::numeric_limits<std::uint32_t>::max();

}  // namespace

Result<UnigramModel> UnigramModel::build(UnigramConfig config) {
    UnigramModel model;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < config.pieces.size(); ++i) {
        const auto& [text, score] = config.pieces[i];
        if (!std::isfinite(score)) {
            return make_error(Errc::invalid_argument, "tokenizer.json: the score of \"" + text + "\" is no number");
        }
        least = std::min(least, score);
        if (!text.empty()) model.trie_.insert(text, static_cast<std::int32_t>(i));
    }
    if (config.unknown_id &&
        (*config.unknown_id < 0 || static_cast<std::size_t>(*config.unknown_id) >= config.pieces.size())) {
        return make_error(Errc::invalid_argument, "tokenizer.json: unk_id is not in the vocabulary");
    }
    model.unknown_score_ = least - kUnknownPenalty;
    for (std::size_t byte = 0; byte < 256; ++byte) {
        model.fallback_ids_[byte] = model.trie_.find(fallback_token(static_cast<unsigned char>(byte))).value_or(-1);
    }
    model.config_ = std::move(config);
    return model;
}

std::optional<TokenId> UnigramModel::id_of(std::string_view token) const { return trie_.find(token); }

std::string_view UnigramModel::text_of(TokenId id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= config_.pieces.size()) return {};
    return config_.pieces[static_cast<std::size_t>(id)].first;
}

void UnigramModel::encode(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const {
    std::string mapped;
    if (raw_bytes) {
        for (const char byte : piece) mapped += byte_characters()[static_cast<unsigned char>(byte)];
        piece = mapped;
    }
    struct Node {
        double score = 0;
        std::uint32_t begin = kUnreached;
        bool unknown = false;
    };
    // best[i]: the best way to cut what ends at byte i, and where its last part begins.
    std::vector<Node> best(piece.size() + 1);
    const auto offer = [&](std::size_t begin, std::size_t end, double score, bool unknown) {
        Node& node = best[end];
        if (node.begin != kUnreached && score <= node.score) return;
        node = {score, static_cast<std::uint32_t>(begin), unknown};
    };
    for (std::size_t at = 0; at < piece.size();) {
        const std::size_t next = at + code_point_at(piece, at).bytes;
        const double so_far = best[at].score;
        bool has_single = false;
        trie_.for_each_prefix(piece.substr(at), [&](std::size_t bytes, std::int32_t id) {
            const bool unknown = config_.unknown_id == id;
            offer(at, at + bytes, so_far + config_.pieces[static_cast<std::size_t>(id)].second, unknown);
            has_single = has_single || at + bytes == next;
        });
        if (!has_single) offer(at, next, so_far + unknown_score_, true);
        at = next;
    }
    std::vector<std::string_view> parts;  // last first
    bool joins_unknown = false;
    for (std::size_t end = piece.size(); end > 0;) {
        const Node& node = best[end];
        if (node.unknown && joins_unknown) {
            const std::string_view later = parts.back();
            parts.back() = piece.substr(node.begin, end - node.begin + later.size());
        } else {
            parts.push_back(piece.substr(node.begin, end - node.begin));
        }
        joins_unknown = node.unknown;
        end = node.begin;
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) append(*part, ids);
}

void UnigramModel::append(std::string_view part, std::vector<TokenId>& ids) const {
    if (const auto id = trie_.find(part)) {
        ids.push_back(*id);
        return;
    }
    const bool has_bytes = config_.byte_fallback && std::all_of(part.begin(), part.end(), [&](char byte) {
                               return fallback_ids_[static_cast<unsigned char>(byte)] >= 0;
                           });
    if (has_bytes) {
        for (const char byte : part) ids.push_back(fallback_ids_[static_cast<unsigned char>(byte)]);
    } else if (config_.unknown_id) {
        ids.push_back(*config_.unknown_id);
    }
}

}  // namespace attune
