#include "engine/text/gguf_split.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace attune {
namespace {

using nlohmann::json;

// The patterns as tokenizer.json has them.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr const char* kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr const char* kDigit = R"(\p{N})";
constexpr const char* kThreeDigits = R"(\p{N}{1,3})";
constexpr const char* kCased =  // escaped, as some of these are not NFC
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-"
    "\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-"
    "\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-"
    "\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e"
    "\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-"
    "\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-"
    "\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+";
constexpr const char* kCjk = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr const char* kHanKana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";

/// Patterns split one after another, each match and each gap a piece of its own; then pieces are bytes.
struct Family {
    std::vector<std::string_view> names;
    std::vector<const char*> patterns;
    bool nfc = false;
    bool ignore_merges = false;
    bool adds_bos = false;
};

const std::vector<Family>& families() {
    static const std::vector<Family> all = {
        {{"default"}, {R"([\p{P}$+<=>^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
        {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
         {kLlama3},
         /*nfc=*/false,
         /*ignore_merges=*/true,
         /*adds_bos=*/true},
        {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kLlama3}},
        {{"qwen2"}, {kQwen2}, /*nfc=*/true},
        {{"stablelm2"}, {kQwen2}, /*nfc=*/true},
        {{"deepseek-r1-qwen", "megrez", "hunyuan", "grok-2"}, {kQwen2}},
        {{"qwen35"}, {kQwen35}, /*nfc=*/true},
        {{"gpt-2", "phi-2", "jais", "exaone4", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum"},
         {kGpt2}},
        {{"mpt", "olmo"}, {kGpt2}, /*nfc=*/true},
        {{"starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b"}, {kDigit, kGpt2}},
        {{"command-r"}, {kDigit, kGpt2}, /*nfc=*/true},
        {{"deepseek-llm"}, {"[\r\n]", kCased, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kCjk, R"(\p{N}+)"}},
        {{"deepseek-coder"}, {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjk, kDigit}},
        {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {kThreeDigits, kHanKana, kDeepseekV3}},
        {{"poro-chat", "bloom", "gpt3-finnish"}, {kBloom}},
        {{"viking"}, {kBloom, kDigit}},
        {{"tekken"}, {kTekken}, /*nfc=*/false, /*ignore_merges=*/true, /*adds_bos=*/true},
        {{"gpt-4o", "llama4", "kanana2"}, {kO200k}},
        {{"tiny_aya"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", kO200k}},
        {{"superbpe"}, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
        {{"jais-2"}, {kJais2}},
        {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing}},
        {{"seed-coder"}, {kSeedCoder}},
    };
    return all;
}

json byte_level(bool use_regex) {
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

json split(std::string_view pattern) {
    return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

json sequence(json steps) { return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}; }

/// Falcon splits digits after bytes have become characters, so it is no list of patterns over the text.
GgufSplit falcon() {
    return {nullptr, sequence({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                               byte_level(true),
                               {{"type", "Digits"}, {"individual_digits", false}},
                               split("[0-9][0-9][0-9]")})};
}

}  // namespace

std::optional<GgufSplit> gguf_split(std::string_view pre) {
    if (pre == "falcon") return falcon();
    for (const Family& family : families()) {
        if (std::find(family.names.begin(), family.names.end(), pre) == family.names.end()) continue;
        json steps = json::array();
        for (const char* pattern : family.patterns) steps.push_back(split(pattern));
        steps.push_back(byte_level(false));
        return GgufSplit{family.nfc ? json{{"type", "NFC"}} : json(), sequence(std::move(steps)), family.ignore_merges,
                         family.adds_bos};
    }
    return std::nullopt;
}

}  // namespace attune
