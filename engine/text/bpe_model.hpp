#pragma once

#include "attune/ids.hpp"
#include "attune/result.hpp"
#include "engine/text/token_model.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attune {

/// What tokenizer.json's `model` holds for BPE.
struct BpeConfig {
    std::vector<std::pair<std::string, TokenId>> vocabulary;
    std::vector<std::pair<std::string, std::string>> merges;  ///< best first
    std::vector<std::uint32_t> merge_ranks;  ///< empty, or one for each merge: equals are merged from the left
    std::string origin = "tokenizer.json";   ///< what errors name
    std::string unknown_token;               ///< empty: none
    std::string continuing_prefix;
    std::string end_suffix;
    bool fuse_unknown = false;
    bool byte_fallback = false;
    bool ignore_merges = false;
};

/// Byte-pair encoding of one piece. Immutable; any thread (each thread keeps a small cache of frequent pieces).
class BpeModel final : public TokenModel {
public:
    static Result<BpeModel> build(BpeConfig config);

    BpeModel(BpeModel&&) = default;
    BpeModel& operator=(BpeModel&&) = delete;

    void encode(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const override;
    std::optional<TokenId> id_of(std::string_view token) const override;
    std::string_view text_of(TokenId id) const override;
    int id_limit() const override { return static_cast<int>(texts_.size()); }
    TokenId unknown_id() const override { return unknown_id_; }
    std::size_t most_bytes_per_id(bool raw_bytes) const override;
    std::size_t kept_bytes(std::string_view text, bool raw_bytes) const override;

private:
    struct Merge {
        std::uint32_t rank = 0;
        TokenId id = 0;
    };
    /// (left, right) -> merge: open addressing, as this is the inner loop of encoding.
    class MergeTable {
    public:
        void reserve(std::size_t count);
        void insert(TokenId left, TokenId right, Merge merge);
        const Merge* find(TokenId left, TokenId right) const;

    private:
        struct Entry {
            std::uint64_t key = kEmpty;
            Merge merge;
        };
        static constexpr std::uint64_t kEmpty = ~0ull;
        static std::uint64_t key_of(TokenId left, TokenId right);
        std::size_t slot_of(std::uint64_t key) const;

        std::vector<Entry> entries_;
        std::size_t mask_ = 0;
    };
    struct PieceCache;

    BpeModel() = default;
    /// Each byte of a raw piece is a symbol of its own or is lost.
    bool takes_bytes_apart() const;
    void encode_uncached(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const;
    void symbols_of_bytes(std::string_view piece, std::vector<TokenId>& symbols) const;
    void symbols_of_text(std::string_view piece, std::vector<TokenId>& symbols) const;
    void merge_short(std::vector<TokenId>& symbols) const;
    void merge_long(std::vector<TokenId>& symbols) const;

    BpeConfig config_;  // without its vocabulary and merges
    std::vector<std::string> texts_;
    std::deque<std::string> other_texts_;                // of ids that have a text already
    std::unordered_map<std::string_view, TokenId> ids_;  // views into both
    MergeTable merges_;
    std::array<TokenId, 256> byte_ids_{};      // by raw byte through the alphabet; -1: no token
    std::array<TokenId, 256> fallback_ids_{};  // <0xNN>; -1: no token
    TokenId unknown_id_ = -1;
    std::size_t longest_bytes_ = 0;       // of any token's text
    std::size_t longest_characters_ = 0;  // one character of the alphabet is one raw byte
    bool texts_bound_ids_ = true;         // an id stands for no more characters than its text has
    std::uint64_t serial_ = 0;            // tells the models of one process apart in the thread's cache
};

}  // namespace attune
