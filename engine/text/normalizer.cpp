#include "engine/text/normalizer.hpp"

#include "engine/text/byte_alphabet.hpp"
#include "engine/text/graphemes.hpp"
#include "engine/text/normalizer_steps.hpp"
#include "engine/text/regex.hpp"
#include "engine/text/rewriter.hpp"
#include "engine/text/unicode.hpp"
#include "engine/text/unicode_tables.hpp"

#include <utf8proc.h>
#include <nlohmann/json.hpp>

#include <string_view>
#include <utility>

namespace attune {

NormalText NormalText::of(std::string text, bool tracked) {
    NormalText normal;
    normal.tracked = tracked;
    if (tracked) {
        normal.origins.reserve(text.size());
        for (std::size_t i = 0; i < text.size(); ++i) {
            normal.origins.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + 1)});
        }
    }
    normal.text = std::move(text);
    return normal;
}

namespace {

using nlohmann::json;

class UnicodeForm final : public Normalizer {
public:
    explicit UnicodeForm(NormalForm form) : form_(form) {}

    /// Worst are letters of the supplementary planes that are compatible with ASCII ones.
    std::size_t most_bytes_to_one() const override { return 4; }

    void apply(NormalText& text) const override {
        if (!text.tracked) {
            text.text = normalized(text.text);
            return;
        }
        // Nothing composes or reorders across the border of two grapheme clusters, so each is normalized alone.
        Rewriter out(text);
        std::size_t begin = 0;
        while (begin < text.text.size()) {
            const std::size_t end = grapheme_end(text.text, begin);
            out.replace(begin, end, normalized(std::string_view(text.text).substr(begin, end - begin)));
            begin = end;
        }
        out.finish();
    }

private:
    /// The reference's tables are older: characters it does not decompose stay, and nothing composes with them.
    std::string normalized(std::string_view text) const {
        if (form_ == NormalForm::nfc) return normalize(text, form_);
        std::string out;
        std::size_t done = 0;
        for (std::size_t at = 0; at < text.size();) {
            const CodePoint point = code_point_at(text, at);
            if (point.value >= 0x32FF && contains(compatibility_not_in_reference(), point.value)) {
                out += normalize(text.substr(done, at - done), form_);
                out += text.substr(at, point.bytes);
                done = at + point.bytes;
            }
            at += point.bytes;
        }
        return out + normalize(text.substr(done), form_);
    }

    NormalForm form_;
};

class Lowercase final : public Normalizer {
public:
    std::size_t most_bytes_to_one() const override { return 3; }  // the Kelvin sign
    void apply(NormalText& text) const override {
        map_characters(text, [](char32_t c, std::string& out) {
            if (c == 0x130) {  // the only character whose lower case is two
                out += "i\xCC\x87";
                return;
            }
            append_utf8(out, lower(c));
        });
    }

private:
    static char32_t lower(char32_t c) {
        for (const auto& [upper, lower_case] : newer_lower_case()) {
            if (upper == c) return lower_case;
        }
        return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
    }
};

class StripAccents final : public Normalizer {
public:
    void apply(NormalText& text) const override {
        map_characters(text, [](char32_t c, std::string& out) {
            if (!is_mark(c) || contains(marks_not_in_reference(), c)) append_utf8(out, c);
        });
    }
};

class ByteLevelNormalizer final : public Normalizer {
public:
    std::size_t most_bytes_to_one() const override { return 1; }
    void apply(NormalText& text) const override {
        Rewriter out(text);
        for (std::size_t at = 0; at < text.text.size(); ++at) {
            out.replace(at, at + 1, byte_characters()[static_cast<unsigned char>(text.text[at])]);
        }
        out.finish();
    }
};

class StripSpaces final : public Normalizer {
public:
    StripSpaces(bool left, bool right) : left_(left), right_(right) {}

    void apply(NormalText& text) const override {
        std::size_t begin = 0;
        std::size_t end = text.text.size();
        while (left_ && begin < end) {
            const CodePoint point = code_point_at(text.text, begin);
            if (!is_white_space(point.value)) break;
            begin += point.bytes;
        }
        while (right_ && end > begin) {
            const CodePoint point = code_point_before(text.text, end);
            if (!is_white_space(point.value)) break;
            end -= point.bytes;
        }
        Rewriter out(text);
        out.keep(begin, end);
        out.finish();
    }

private:
    bool left_;
    bool right_;
};

class Replace final : public Normalizer {
public:
    /// `shortens`: a match may be longer than what takes its place.
    Replace(Regex pattern, std::string content, bool shortens)
        : pattern_(std::move(pattern)), content_(std::move(content)), shortens_(shortens) {}

    std::size_t most_bytes_to_one() const override { return shortens_ ? 0 : 1; }

    void apply(NormalText& text) const override {
        Rewriter out(text);
        std::size_t done = 0;
        pattern_.for_each(text.text, [&](Regex::Match match) {
            out.keep(done, match.begin);
            out.replace(match.begin, match.end, content_);
            done = match.end;
        });
        out.keep(done, text.text.size());
        out.finish();
    }

private:
    Regex pattern_;
    std::string content_;
    bool shortens_;
};

class Prepend final : public Normalizer {
public:
    explicit Prepend(std::string content) : content_(std::move(content)) {}

    std::size_t most_bytes_to_one() const override { return 1; }

    void apply(NormalText& text) const override {
        if (text.text.empty()) return;
        Rewriter out(text);
        out.replace(0, 0, content_);
        out.keep(0, text.text.size());
        out.finish();
    }

private:
    std::string content_;
};

class NormalizerSequence final : public Normalizer {
public:
    explicit NormalizerSequence(std::vector<std::unique_ptr<const Normalizer>> steps) : steps_(std::move(steps)) {}

    void apply(NormalText& text) const override {
        for (const auto& step : steps_) step->apply(text);
    }
    std::size_t most_bytes_to_one() const override {
        std::size_t bytes = 1;
        for (const auto& step : steps_) bytes *= step->most_bytes_to_one();
        return bytes;
    }

private:
    std::vector<std::unique_ptr<const Normalizer>> steps_;
};

using Parsed = Result<std::unique_ptr<const Normalizer>>;

Parsed parse_replace(const json& config) {
    const json& pattern = config.at("pattern");
    const bool literal = pattern.contains("String");
    const std::string text = pattern.at(literal ? "String" : "Regex").get<std::string>();
    auto regex = literal ? Regex::literal(text) : Regex::compile(text);
    if (!regex) return regex.error();
    std::string content = config.at("content").get<std::string>();
    const bool shortens = !literal || content.size() < text.size();
    return Parsed(std::make_unique<Replace>(std::move(*regex), std::move(content), shortens));
}

Parsed parse_sequence(const json& config) {
    std::vector<std::unique_ptr<const Normalizer>> steps;
    for (const json& step : config.at("normalizers")) {
        auto parsed = Normalizer::parse(step);
        if (!parsed) return parsed;
        steps.push_back(std::move(*parsed));
    }
    return Parsed(std::make_unique<NormalizerSequence>(std::move(steps)));
}

}  // namespace

Result<std::unique_ptr<const Normalizer>> Normalizer::parse(const json& config) {
    if (config.is_null()) return Parsed(std::unique_ptr<const Normalizer>());
    const std::string type = config.at("type").get<std::string>();
    if (type == "Sequence") return parse_sequence(config);
    if (type == "NFC") return Parsed(std::make_unique<UnicodeForm>(NormalForm::nfc));
    if (type == "NFD") return Parsed(std::make_unique<UnicodeForm>(NormalForm::nfd));
    if (type == "NFKC") return Parsed(std::make_unique<UnicodeForm>(NormalForm::nfkc));
    if (type == "NFKD") return Parsed(std::make_unique<UnicodeForm>(NormalForm::nfkd));
    if (type == "Lowercase") return Parsed(std::make_unique<Lowercase>());
    if (type == "StripAccents") return Parsed(std::make_unique<StripAccents>());
    if (type == "ByteLevel") return Parsed(std::make_unique<ByteLevelNormalizer>());
    if (type == "Strip") {
        return Parsed(
            std::make_unique<StripSpaces>(config.value("strip_left", true), config.value("strip_right", true)));
    }
    if (type == "Replace") return parse_replace(config);
    if (type == "Precompiled") return parse_precompiled(config);
    if (type == "BertNormalizer") return parse_bert_normalizer(config);
    if (type == "Prepend") return Parsed(std::make_unique<Prepend>(config.at("prepend").get<std::string>()));
    return make_error(Errc::unsupported, "tokenizer.json: normalizer " + type + " is not supported");
}

}  // namespace attune
