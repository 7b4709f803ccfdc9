#include "engine/text/bpe_model.hpp"

#include "engine/text/byte_alphabet.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <queue>

namespace attune {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
/// Up to here scanning for the best pair beats a queue.
constexpr std::size_t kShortSymbols = 48;
/// Ids are kept for pieces up to this size; longer ones are rare and would only push others out.
constexpr std::size_t kCachedBytes = 24;
constexpr std::size_t kCachedIds = 8;
constexpr std::size_t kCacheSlots = 1 << 13;

std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    return x;
}

std::uint64_t hash_piece(std::string_view piece, std::uint64_t seed) {
    std::uint64_t hash = seed + piece.size();
    std::uint64_t word = 0;
    std::size_t at = 0;
    for (; at + 8 <= piece.size(); at += 8) {
        std::memcpy(&word, piece.data() + at, 8);
        hash = mix(hash ^ word);
    }
    if (at < piece.size()) {
        word = 0;
        std::memcpy(&word, piece.data() + at, piece.size() - at);
        hash = mix(hash ^ word);
    }
    return mix(hash);
}

}  // namespace

/// Direct-mapped, per thread, fixed size: a hit costs one hash and one comparison, nothing is locked or freed.
struct BpeModel::PieceCache {
    struct Slot {
        std::uint64_t serial = 0;  // 0: empty
        std::uint8_t bytes = 0;
        std::uint8_t count = 0;
        bool raw_bytes = false;
        std::array<char, kCachedBytes> piece{};
        std::array<TokenId, kCachedIds> ids{};
    };
    std::vector<Slot> slots{kCacheSlots};

    static PieceCache& of_thread() {
        thread_local PieceCache cache;
        return cache;
    }
};

std::uint64_t BpeModel::MergeTable::key_of(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::size_t BpeModel::MergeTable::slot_of(std::uint64_t key) const {
    std::size_t slot = mix(key) & mask_;
    while (entries_[slot].key != kEmpty && entries_[slot].key != key) slot = (slot + 1) & mask_;
    return slot;
}

void BpeModel::MergeTable::reserve(std::size_t count) {
    entries_.assign(std::bit_ceil(2 * count + 2), Entry{});
    mask_ = entries_.size() - 1;
}

void BpeModel::MergeTable::insert(TokenId left, TokenId right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    entries_[slot_of(key)] = Entry{key, merge};
}

const BpeModel::Merge* BpeModel::MergeTable::find(TokenId left, TokenId right) const {
    const Entry& entry = entries_[slot_of(key_of(left, right))];
    return entry.key == kEmpty ? nullptr : &entry.merge;
}

Result<BpeModel> BpeModel::build(BpeConfig config) {
    BpeModel model;
    TokenId largest = -1;
    for (const auto& [token, id] : config.vocabulary) {
        if (id < 0 || id > 16'000'000) {
            return make_error(Errc::invalid_argument, config.origin + ": the id of \"" + token + "\" is out of range");
        }
        largest = std::max(largest, id);
    }
    model.texts_.resize(static_cast<std::size_t>(largest + 1));
    model.ids_.reserve(config.vocabulary.size());
    for (auto& [token, id] : config.vocabulary) {
        std::string& own = model.texts_[static_cast<std::size_t>(id)];
        const bool is_other = !own.empty() && own != token;
        std::string& text = is_other ? model.other_texts_.emplace_back() : own;
        if (text.empty()) text = std::move(token);
        model.ids_[text] = id;
        if (is_other) model.texts_bound_ids_ = false;
        model.longest_bytes_ = std::max(model.longest_bytes_, text.size());
        model.longest_characters_ = std::max(model.longest_characters_, count_code_points(text));
    }
    model.merges_.reserve(config.merges.size());
    std::string joined;
    for (std::size_t rank = 0; rank < config.merges.size(); ++rank) {
        const auto& [left, right] = config.merges[rank];
        joined = left;
        joined += std::string_view(right).substr(std::min(right.size(), config.continuing_prefix.size()));
        const auto left_id = model.id_of(left);
        const auto right_id = model.id_of(right);
        const auto joined_id = model.id_of(joined);
        if (!left_id || !right_id || !joined_id) {
            return make_error(Errc::invalid_argument, config.origin + ": merge \"" + left + "\" + \"" + right +
                                                          "\" uses a token that is not in the vocabulary");
        }
        const std::uint32_t given =
            config.merge_ranks.empty() ? static_cast<std::uint32_t>(rank) : config.merge_ranks[rank];
        model.merges_.insert(*left_id, *right_id, {given, *joined_id});
    }
    for (int byte = 0; byte < 256; ++byte) {
        const auto at = static_cast<std::size_t>(byte);
        model.byte_ids_[at] = model.id_of(byte_characters()[at]).value_or(-1);
        model.fallback_ids_[at] = model.id_of(fallback_token(static_cast<unsigned char>(byte))).value_or(-1);
    }
    if (!config.unknown_token.empty()) {
        const auto id = model.id_of(config.unknown_token);
        if (!id) {
            return make_error(Errc::invalid_argument,
                              config.origin + ": unk_token \"" + config.unknown_token + "\" is not in the vocabulary");
        }
        model.unknown_id_ = *id;
    }
    // One more character whatever it is longer than, if merges go on from what is unknown.
    const bool merges_unknown = std::ranges::any_of(config.merges, [&](const auto& merge) {
        return merge.first == config.unknown_token || merge.second == config.unknown_token;
    });
    if (merges_unknown || !config.continuing_prefix.empty() || !config.end_suffix.empty())
        model.texts_bound_ids_ = false;
    static std::atomic<std::uint64_t> next_serial{1};
    model.serial_ = next_serial.fetch_add(1);
    config.vocabulary.clear();
    config.merges.clear();
    config.merge_ranks.clear();
    model.config_ = std::move(config);
    return model;
}

std::optional<TokenId> BpeModel::id_of(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

std::string_view BpeModel::text_of(TokenId id) const {
    if (id < 0 || id >= id_limit()) return {};
    return texts_[static_cast<std::size_t>(id)];
}

void BpeModel::encode(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const {
    if (piece.empty()) return;
    if (piece.size() > kCachedBytes) {
        encode_uncached(piece, raw_bytes, ids);
        return;
    }
    auto& slots = PieceCache::of_thread().slots;
    PieceCache::Slot& slot = slots[hash_piece(piece, serial_) & (kCacheSlots - 1)];
    if (slot.serial == serial_ && slot.raw_bytes == raw_bytes &&
        std::string_view(slot.piece.data(), slot.bytes) == piece) {
        ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
        return;
    }
    const std::size_t first = ids.size();
    encode_uncached(piece, raw_bytes, ids);
    const std::size_t count = ids.size() - first;
    if (count > kCachedIds) return;
    slot.serial = serial_;
    slot.raw_bytes = raw_bytes;
    slot.bytes = static_cast<std::uint8_t>(piece.size());
    slot.count = static_cast<std::uint8_t>(count);
    std::copy(piece.begin(), piece.end(), slot.piece.begin());
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(), slot.ids.begin());
}

bool BpeModel::takes_bytes_apart() const {
    return unknown_id_ < 0 && !config_.byte_fallback && config_.continuing_prefix.empty() && config_.end_suffix.empty();
}

std::size_t BpeModel::most_bytes_per_id(bool raw_bytes) const {
    if (!texts_bound_ids_) return 0;
    if (raw_bytes && takes_bytes_apart()) return longest_characters_;
    const bool has_all_bytes =
        config_.byte_fallback && std::ranges::all_of(fallback_ids_, [](TokenId id) { return id >= 0; });
    const bool has_unknown = unknown_id_ >= 0 && !config_.fuse_unknown;
    constexpr std::size_t kCharacterBytes = 4;  // an unknown character
    return has_all_bytes || has_unknown ? std::max(longest_bytes_, kCharacterBytes) : 0;
}

std::size_t BpeModel::kept_bytes(std::string_view text, bool raw_bytes) const {
    if (!raw_bytes || !takes_bytes_apart()) return text.size();
    std::size_t kept = 0;
    for (const char byte : text) kept += byte_ids_[static_cast<unsigned char>(byte)] >= 0;
    return kept;
}

void BpeModel::encode_uncached(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const {
    if (config_.ignore_merges) {
        std::string mapped;
        if (raw_bytes) {
            for (const char byte : piece) mapped += byte_characters()[static_cast<unsigned char>(byte)];
        }
        if (const auto id = id_of(raw_bytes ? std::string_view(mapped) : piece)) {
            ids.push_back(*id);
            return;
        }
    }
    thread_local std::vector<TokenId> symbols;
    symbols.clear();
    if (raw_bytes && takes_bytes_apart()) {
        symbols_of_bytes(piece, symbols);
    } else if (raw_bytes) {
        std::string mapped;
        for (const char byte : piece) mapped += byte_characters()[static_cast<unsigned char>(byte)];
        symbols_of_text(mapped, symbols);
    } else {
        symbols_of_text(piece, symbols);
    }
    if (symbols.size() <= kShortSymbols) {
        merge_short(symbols);
    } else {
        merge_long(symbols);
    }
    ids.insert(ids.end(), symbols.begin(), symbols.end());
    if (symbols.capacity() > (1u << 16)) std::vector<TokenId>().swap(symbols);
}

void BpeModel::symbols_of_bytes(std::string_view piece, std::vector<TokenId>& symbols) const {
    for (const char byte : piece) {
        const TokenId id = byte_ids_[static_cast<unsigned char>(byte)];
        if (id >= 0) symbols.push_back(id);  // a byte without a token is lost, as in the reference
    }
}

void BpeModel::symbols_of_text(std::string_view piece, std::vector<TokenId>& symbols) const {
    bool unknown_pending = false;
    const auto flush_unknown = [&] {
        if (unknown_pending) symbols.push_back(unknown_id_);
        unknown_pending = false;
    };
    std::string decorated;
    for (std::size_t at = 0; at < piece.size();) {
        const std::size_t next = at + code_point_at(piece, at).bytes;
        std::string_view symbol = piece.substr(at, next - at);
        const bool needs_prefix = at > 0 && !config_.continuing_prefix.empty();
        const bool needs_suffix = next >= piece.size() && !config_.end_suffix.empty();
        if (needs_prefix || needs_suffix) {
            decorated = needs_prefix ? config_.continuing_prefix : std::string();
            decorated += symbol;
            if (needs_suffix) decorated += config_.end_suffix;
            symbol = decorated;
        }
        at = next;
        if (const auto id = id_of(symbol)) {
            flush_unknown();
            symbols.push_back(*id);
            continue;
        }
        const bool has_bytes = config_.byte_fallback && std::all_of(symbol.begin(), symbol.end(), [&](char byte) {
                                   return fallback_ids_[static_cast<unsigned char>(byte)] >= 0;
                               });
        if (has_bytes) {
            // The reference does not put a pending unknown token before these; neither do we.
            for (const char byte : symbol) symbols.push_back(fallback_ids_[static_cast<unsigned char>(byte)]);
            continue;
        }
        if (unknown_id_ < 0) continue;
        if (!config_.fuse_unknown) flush_unknown();
        unknown_pending = true;
    }
    flush_unknown();
}

void BpeModel::merge_short(std::vector<TokenId>& symbols) const {
    if (symbols.size() < 2) return;
    std::array<Merge, kShortSymbols> merges;  // merges[i] joins symbols i and i + 1
    const auto look_up = [&](std::size_t i) {
        const Merge* merge = merges_.find(symbols[i], symbols[i + 1]);
        merges[i] = merge == nullptr ? Merge{kNoRank, 0} : *merge;
    };
    std::size_t count = symbols.size();
    for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
    while (count > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < count; ++i) {
            if (merges[i].rank < merges[best].rank) best = i;
        }
        if (merges[best].rank == kNoRank) break;
        symbols[best] = merges[best].id;
        for (std::size_t i = best + 1; i + 1 < count; ++i) {
            symbols[i] = symbols[i + 1];
            merges[i] = i + 2 < count ? merges[i + 1] : Merge{kNoRank, 0};
        }
        --count;
        if (best + 1 < count) look_up(best);
        if (best > 0) look_up(best - 1);
    }
    symbols.resize(count);
}

void BpeModel::merge_long(std::vector<TokenId>& symbols) const {
    struct Node {
        std::int32_t previous;
        std::int32_t next;  // -1: last
    };
    struct Candidate {
        std::uint32_t rank;
        std::int32_t at;
        TokenId id;
        bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
    };
    const auto count = static_cast<std::int32_t>(symbols.size());
    std::vector<Node> nodes(symbols.size());
    std::vector<Candidate> start;
    const auto symbol = [&](std::int32_t at) -> TokenId& { return symbols[static_cast<std::size_t>(at)]; };
    const auto node = [&](std::int32_t at) -> Node& { return nodes[static_cast<std::size_t>(at)]; };
    for (std::int32_t i = 0; i < count; ++i) {
        node(i) = {i - 1, i + 1 < count ? i + 1 : -1};
        if (i + 1 == count) break;
        if (const Merge* merge = merges_.find(symbol(i), symbol(i + 1))) start.push_back({merge->rank, i, merge->id});
    }
    std::priority_queue queue(std::greater<Candidate>(), std::move(start));
    const auto offer = [&](std::int32_t left, std::int32_t right) {
        if (const Merge* merge = merges_.find(symbol(left), symbol(right))) queue.push({merge->rank, left, merge->id});
    };
    while (!queue.empty()) {
        const Candidate top = queue.top();
        queue.pop();
        if (symbol(top.at) < 0) continue;  // merged away
        const std::int32_t right = node(top.at).next;
        if (right < 0) continue;
        const Merge* merge = merges_.find(symbol(top.at), symbol(right));
        if (merge == nullptr || merge->id != top.id) continue;  // the pair has changed since
        symbol(top.at) = top.id;
        symbol(right) = -1;
        const std::int32_t after = node(right).next;
        node(top.at).next = after;
        if (after >= 0) {
            node(after).previous = top.at;
            offer(top.at, after);
        }
        if (node(top.at).previous >= 0) offer(node(top.at).previous, top.at);
    }
    std::erase_if(symbols, [](TokenId id) { return id < 0; });
}

}  // namespace attune
