#include "engine/text/graphemes.hpp"
#include "engine/text/normalizer_steps.hpp"
#include "engine/text/rewriter.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstring>
#include <optional>

namespace attune {
namespace {

using nlohmann::json;

std::optional<std::string> from_base64(std::string_view text) {
    std::string bytes;
    std::uint32_t bits = 0;
    int held = 0;
    while (text.ends_with('=')) text.remove_suffix(1);
    for (const char c : text) {
        std::uint32_t value = 0;
        if (c >= 'A' && c <= 'Z') {
            value = static_cast<std::uint32_t>(c - 'A');
        } else if (c >= 'a' && c <= 'z') {
            value = static_cast<std::uint32_t>(c - 'a' + 26);
        } else if (c >= '0' && c <= '9') {
            value = static_cast<std::uint32_t>(c - '0' + 52);
        } else if (c == '+' || c == '/') {
            value = c == '+' ? 62 : 63;
        } else {
            return std::nullopt;
        }
        bits = bits << 6 | value;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        bytes += static_cast<char>(bits >> held & 0xFF);
    }
    return bytes;
}

/// A Darts double-array trie (S. Yata's darts-clone layout) from a file: every step is checked against its size.
class DoubleArray {
public:
    explicit DoubleArray(std::vector<std::uint32_t> units) : units_(std::move(units)) {}

    /// The value of the shortest key that `text` begins with.
    std::optional<std::uint32_t> shortest_prefix(std::string_view text) const {
        if (units_.empty()) return std::nullopt;
        std::size_t at = offset(units_[0]);
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            if (byte == 0) break;
            at ^= byte;
            if (at >= units_.size()) return std::nullopt;
            const std::uint32_t unit = units_[at];
            if ((unit & (1u << 31 | 0xFF)) != byte) return std::nullopt;
            at ^= offset(unit);
            if ((unit >> 8 & 1) == 0) continue;
            if (at >= units_.size()) return std::nullopt;
            return units_[at] & ((1u << 31) - 1);
        }
        return std::nullopt;
    }

private:
    static std::size_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

    std::vector<std::uint32_t> units_;
};

class Precompiled final : public Normalizer {
public:
    Precompiled(DoubleArray trie, std::string targets) : trie_(std::move(trie)), targets_(std::move(targets)) {}

    /// As the reference does it: a short grapheme as a whole, else its characters one by one.
    void apply(NormalText& text) const override {
        constexpr std::size_t kShortGrapheme = 6;  // bytes
        Rewriter out(text);
        const std::string_view all = text.text;
        for (std::size_t at = 0; at < all.size();) {
            const std::size_t end = grapheme_end(all, at);
            if (end - at < kShortGrapheme) {
                if (const auto with = target(all.substr(at, end - at))) {
                    out.replace(at, end, *with);
                    at = end;
                    continue;
                }
            }
            while (at < end) {
                const std::size_t next = at + code_point_at(all, at).bytes;
                if (const auto with = target(all.substr(at, next - at))) {
                    out.replace(at, next, *with);
                } else {
                    out.keep(at, next);
                }
                at = next;
            }
        }
        out.finish();
    }

private:
    std::optional<std::string_view> target(std::string_view part) const {
        const auto at = trie_.shortest_prefix(part);
        if (!at || *at >= targets_.size()) return std::nullopt;
        return std::string_view(targets_).substr(*at, targets_.find('\0', *at) - *at);
    }

    DoubleArray trie_;
    std::string targets_;  // each ends with NUL
};

}  // namespace

Result<std::unique_ptr<const Normalizer>> parse_precompiled(const json& config) {
    const Error broken = make_error(Errc::invalid_argument, "tokenizer: precompiled_charsmap is broken");
    std::string bytes;
    const auto found = config.find("precompiled_charsmap");
    if (found == config.end()) return broken;
    if (found->is_binary()) {
        bytes.assign(found->get_binary().begin(), found->get_binary().end());
    } else if (found->is_string()) {
        auto decoded = from_base64(found->get_ref<const std::string&>());
        if (!decoded) return broken;
        bytes = std::move(*decoded);
    } else if (!found->is_null()) {
        return broken;
    }
    std::uint32_t trie_bytes = 0;  // little-endian, as everything in this house
    if (!bytes.empty()) {
        if (bytes.size() < sizeof trie_bytes) return broken;
        std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
        bytes.erase(0, sizeof trie_bytes);
    }
    if (trie_bytes > bytes.size() || trie_bytes % sizeof(std::uint32_t) != 0) return broken;
    std::vector<std::uint32_t> units(trie_bytes / sizeof(std::uint32_t));
    if (trie_bytes > 0) std::memcpy(units.data(), bytes.data(), trie_bytes);
    bytes.erase(0, trie_bytes);
    if (!is_valid_utf8(bytes)) return broken;
    return Result<std::unique_ptr<const Normalizer>>(
        std::make_unique<Precompiled>(DoubleArray(std::move(units)), std::move(bytes)));
}

}  // namespace attune
