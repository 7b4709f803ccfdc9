#include "engine/text/normalizer_steps.hpp"
#include "engine/text/rewriter.hpp"
#include "engine/text/unicode_tables.hpp"

#include <utf8proc.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace attune {
namespace {

using nlohmann::json;

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Categories C*; unassigned code points stay.
bool is_control(char32_t c) {
    const utf8proc_category_t kind = category(c);
    return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
}

bool is_han(char32_t c) {
    constexpr std::array<std::pair<char32_t, char32_t>, 8> kBlocks = {{{0x4E00, 0x9FFF},
                                                                       {0x3400, 0x4DBF},
                                                                       {0x20000, 0x2A6DF},
                                                                       {0x2A700, 0x2B73F},
                                                                       {0x2B740, 0x2B81F},
                                                                       {0x2B920, 0x2CEAF},  // as the reference has it
                                                                       {0xF900, 0xFAFF},
                                                                       {0x2F800, 0x2FA1F}}};
    return std::any_of(kBlocks.begin(), kBlocks.end(),
                       [c](const auto& block) { return c >= block.first && c <= block.second; });
}

class BertNormalizer final : public Normalizer {
public:
    struct Options {
        bool clean = true;
        bool spaces_around_han = true;
    };
    /// `rest`: accents and case.
    BertNormalizer(Options options, std::vector<std::unique_ptr<const Normalizer>> rest, bool strips_accents)
        : options_(options), rest_(std::move(rest)), strips_accents_(strips_accents) {}

    void apply(NormalText& text) const override {
        map_characters(text, [this](char32_t c, std::string& out) {
            if (options_.clean) {
                const bool is_line_space = c == '\t' || c == '\n' || c == '\r';
                if (c == 0 || c == 0xFFFD || (is_control(c) && !is_line_space)) return;
                if (is_line_space || is_white_space(c)) c = ' ';
            }
            const bool is_apart = options_.spaces_around_han && is_han(c);
            if (is_apart) out += ' ';
            append_utf8(out, c);
            if (is_apart) out += ' ';
        });
        std::size_t next = 0;
        if (strips_accents_) {
            rest_[next++]->apply(text);
            map_characters(text, [](char32_t c, std::string& out) {
                const bool is_accent =
                    (category(c) == UTF8PROC_CATEGORY_MN && !contains(accents_not_in_reference(), c)) ||
                    contains(accents_only_in_reference(), c);
                if (!is_accent) append_utf8(out, c);
            });
        }
        for (; next < rest_.size(); ++next) rest_[next]->apply(text);
    }

private:
    Options options_;
    std::vector<std::unique_ptr<const Normalizer>> rest_;
    bool strips_accents_;
};

}  // namespace

Result<std::unique_ptr<const Normalizer>> parse_bert_normalizer(const json& config) {
    const bool lowercase = config.value("lowercase", true);
    const auto strip = config.find("strip_accents");
    const bool strips_accents = strip == config.end() || strip->is_null() ? lowercase : strip->get<bool>();
    std::vector<std::unique_ptr<const Normalizer>> rest;
    for (const auto& [wanted, type] : {std::pair{strips_accents, "NFD"}, std::pair{lowercase, "Lowercase"}}) {
        if (!wanted) continue;
        auto step = Normalizer::parse({{"type", type}});
        if (!step) return step;
        rest.push_back(std::move(*step));
    }
    const BertNormalizer::Options options{config.value("clean_text", true), config.value("handle_chinese_chars", true)};
    return Result<std::unique_ptr<const Normalizer>>(
        std::make_unique<BertNormalizer>(options, std::move(rest), strips_accents));
}

}  // namespace attune
