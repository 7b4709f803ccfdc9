#include "engine/text/pre_tokenizer.hpp"

#include "engine/text/byte_alphabet.hpp"
#include "engine/text/splitter.hpp"
#include "engine/text/unicode.hpp"
#include "engine/text/unicode_tables.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

class Split final : public PreTokenizer::Step {
public:
    Split(Regex regex, bool invert, SplitBehavior behavior)
        : regex_(std::move(regex)), invert_(invert), behavior_(behavior) {}
    void split(const Piece& piece, Pieces& out) const override {
        split_by_regex(piece, regex_, invert_, behavior_, out.scratch);
    }
    bool drops_text() const override { return behavior_ == SplitBehavior::removed; }

private:
    Regex regex_;
    bool invert_;
    SplitBehavior behavior_;
};

class CharacterSplit final : public PreTokenizer::Step {
public:
    using Predicate = bool (*)(char32_t);
    CharacterSplit(Predicate is_match, SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
    void split(const Piece& piece, Pieces& out) const override {
        split_by_character(piece, is_match_, behavior_, out.scratch);
    }
    bool drops_text() const override { return behavior_ == SplitBehavior::removed; }

private:
    Predicate is_match_;
    SplitBehavior behavior_;
};

/// Runs of word characters and runs of others; white space is dropped.
class WordSplit final : public PreTokenizer::Step {
public:
    bool drops_text() const override { return true; }
    void split(const Piece& piece, Pieces& out) const override {
        enum class Kind { none, word, other };
        Kind run = Kind::none;
        std::size_t begin = 0;
        const auto end_run = [&](std::size_t end) {
            if (run == Kind::none) return;
            out.scratch.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
        };
        for (std::size_t at = 0; at < piece.text.size();) {
            const CodePoint point = code_point_at(piece.text, at);
            const Kind kind = is_white_space(point.value)      ? Kind::none
                              : is_word_character(point.value) ? Kind::word
                                                               : Kind::other;
            if (kind != run) {
                end_run(at);
                run = kind;
                begin = at;
            }
            at += point.bytes;
        }
        end_run(piece.text.size());
    }
};

class DelimiterSplit final : public PreTokenizer::Step {
public:
    explicit DelimiterSplit(char32_t delimiter) : delimiter_(delimiter) {}
    bool drops_text() const override { return true; }
    void split(const Piece& piece, Pieces& out) const override {
        split_by_character(
            piece, [this](char32_t c) { return c == delimiter_; }, SplitBehavior::removed, out.scratch);
    }

private:
    char32_t delimiter_;
};

class ByteLevel final : public PreTokenizer::Step {
public:
    ByteLevel(bool add_prefix_space, std::optional<Regex> regex, bool map_bytes)
        : add_prefix_space_(add_prefix_space), regex_(std::move(regex)), map_bytes_(map_bytes) {}
    bool rewrites_text() const override { return map_bytes_; }

    void split(const Piece& piece, Pieces& out) const override {
        Piece text = piece;
        if (add_prefix_space_ && !piece.text.starts_with(' ')) {
            text.text = out.owned.emplace_back(" " + std::string(piece.text));
        }
        const std::size_t first = out.scratch.size();
        if (regex_) {
            split_by_regex(text, *regex_, false, SplitBehavior::isolated, out.scratch);
        } else {
            out.scratch.push_back(text);
        }
        if (!map_bytes_) return;
        for (std::size_t i = first; i < out.scratch.size(); ++i) {
            std::string mapped;
            for (const char byte : out.scratch[i].text) mapped += byte_characters()[static_cast<unsigned char>(byte)];
            out.scratch[i].text = out.owned.emplace_back(std::move(mapped));
        }
    }

private:
    bool add_prefix_space_;
    std::optional<Regex> regex_;
    bool map_bytes_;
};

class Metaspace final : public PreTokenizer::Step {
public:
    enum class Prepend { always, first, never };
    Metaspace(std::string replacement, Prepend prepend, std::optional<Regex> split)
        : replacement_(std::move(replacement)), prepend_(prepend), split_(std::move(split)) {}
    bool drops_text() const override { return replacement_.empty(); }
    bool rewrites_text() const override { return true; }

    void split(const Piece& piece, Pieces& out) const override {
        std::string text;
        for (const char c : piece.text) {
            if (c == ' ') {
                text += replacement_;
            } else {
                text += c;
            }
        }
        const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && piece.at_start);
        if (wanted && !text.starts_with(replacement_)) text.insert(0, replacement_);
        const Piece whole{out.owned.emplace_back(std::move(text)), piece.at_start};
        if (split_) {
            split_by_regex(whole, *split_, false, SplitBehavior::merged_with_next, out.scratch);
        } else {
            out.scratch.push_back(whole);
        }
    }

private:
    std::string replacement_;
    Prepend prepend_;
    std::optional<Regex> split_;
};

bool is_tokenizers_punctuation(char32_t c) {
    const bool ascii = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    if (ascii || contains(punctuation_only_in_reference(), c)) return true;
    return is_punctuation(c) && !contains(punctuation_not_in_reference(), c);
}

using Steps = std::vector<std::unique_ptr<const PreTokenizer::Step>>;

Result<void> add_split(const json& config, Steps& steps) {
    const json& pattern = config.at("pattern");
    auto regex = pattern.contains("String") ? Regex::literal(pattern.at("String").get<std::string>())
                                            : Regex::compile(pattern.at("Regex").get<std::string>());
    if (!regex) return regex.error();
    const std::string name = config.at("behavior").get<std::string>();
    const auto behavior = behavior_named(name);
    if (!behavior) return make_error(Errc::unsupported, "tokenizer.json: split behavior " + name + " is not supported");
    steps.push_back(std::make_unique<Split>(std::move(*regex), config.value("invert", false), *behavior));
    return {};
}

Result<void> add_byte_level(const json& config, bool is_last, Steps& steps) {
    std::optional<Regex> split;
    if (config.value("use_regex", true)) {
        auto regex = Regex::compile(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
        if (!regex) return regex.error();
        split = std::move(*regex);
    }
    steps.push_back(std::make_unique<ByteLevel>(config.value("add_prefix_space", true), std::move(split), !is_last));
    return {};
}

Result<void> add_metaspace(const json& config, Steps& steps) {
    const std::string scheme = config.value("prepend_scheme", std::string());
    Metaspace::Prepend prepend = Metaspace::Prepend::always;
    if (scheme == "first") prepend = Metaspace::Prepend::first;
    // Files from before prepend_scheme say add_prefix_space.
    if (scheme == "never" || (scheme.empty() && !config.value("add_prefix_space", true))) {
        prepend = Metaspace::Prepend::never;
    }
    const std::string replacement = config.value("replacement", std::string("\xE2\x96\x81"));
    std::optional<Regex> split;
    if (config.value("split", true)) {
        auto regex = Regex::literal(replacement);
        if (!regex) return regex.error();
        split = std::move(*regex);
    }
    steps.push_back(std::make_unique<Metaspace>(replacement, prepend, std::move(split)));
    return {};
}

Result<void> add_punctuation(const json& config, Steps& steps) {
    const std::string name = config.value("behavior", std::string("Isolated"));
    const auto behavior = behavior_named(name);
    if (!behavior) return make_error(Errc::unsupported, "tokenizer.json: split behavior " + name + " is not supported");
    steps.push_back(std::make_unique<CharacterSplit>(is_tokenizers_punctuation, *behavior));
    return {};
}

Result<void> add_steps(const json& config, bool is_last, Steps& steps) {
    const std::string type = config.at("type").get<std::string>();
    if (type == "Sequence") {
        const json& parts = config.at("pretokenizers");
        for (std::size_t i = 0; i < parts.size(); ++i) {
            if (auto added = add_steps(parts[i], is_last && i + 1 == parts.size(), steps); !added) return added;
        }
        return {};
    }
    if (type == "Split") return add_split(config, steps);
    if (type == "ByteLevel") return add_byte_level(config, is_last, steps);
    if (type == "Metaspace") return add_metaspace(config, steps);
    if (type == "Punctuation") return add_punctuation(config, steps);
    if (type == "Digits") {
        const bool each = config.value("individual_digits", false);
        const SplitBehavior behavior = each ? SplitBehavior::isolated : SplitBehavior::contiguous;
        steps.push_back(std::make_unique<CharacterSplit>(is_numeric, behavior));
        return {};
    }
    if (type == "WhitespaceSplit") {
        steps.push_back(std::make_unique<CharacterSplit>(is_white_space, SplitBehavior::removed));
        return {};
    }
    if (type == "Whitespace") {
        steps.push_back(std::make_unique<WordSplit>());
        return {};
    }
    if (type == "CharDelimiterSplit") {
        const std::string delimiter = config.at("delimiter").get<std::string>();
        steps.push_back(std::make_unique<DelimiterSplit>(code_point_at(delimiter, 0).value));
        return {};
    }
    if (type == "BertPreTokenizer") {
        steps.push_back(std::make_unique<CharacterSplit>(is_white_space, SplitBehavior::removed));
        steps.push_back(std::make_unique<CharacterSplit>(is_tokenizers_punctuation, SplitBehavior::isolated));
        return {};
    }
    return make_error(Errc::unsupported, "tokenizer.json: pre_tokenizer " + type + " is not supported");
}

bool last_is_byte_level(const json& config) {
    const std::string type = config.at("type").get<std::string>();
    if (type != "Sequence") return type == "ByteLevel";
    const json& parts = config.at("pretokenizers");
    return !parts.empty() && last_is_byte_level(parts.back());
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<std::unique_ptr<const Step>> steps, bool ends_in_bytes)
    : steps_(std::move(steps)), ends_in_bytes_(ends_in_bytes) {}

PreTokenizer::~PreTokenizer() = default;

Result<std::unique_ptr<const PreTokenizer>> PreTokenizer::parse(const json& config) {
    using Parsed = Result<std::unique_ptr<const PreTokenizer>>;
    if (config.is_null()) return Parsed(std::unique_ptr<const PreTokenizer>());
    std::vector<std::unique_ptr<const Step>> steps;
    if (auto added = add_steps(config, true, steps); !added) return added.error();
    return Parsed(std::make_unique<PreTokenizer>(std::move(steps), last_is_byte_level(config)));
}

bool PreTokenizer::keeps_text() const {
    return std::ranges::all_of(
        steps_, [&](const auto& step) { return !step->drops_text() && !(ends_in_bytes_ && step->rewrites_text()); });
}

void PreTokenizer::apply(Pieces& pieces) const {
    for (const auto& step : steps_) {
        pieces.scratch.clear();
        for (const Piece& piece : pieces.list) {
            if (!piece.text.empty()) step->split(piece, pieces);
        }
        std::swap(pieces.list, pieces.scratch);
    }
}

}  // namespace attune
