#include "engine/text/gguf_tokenizer.hpp"
#include "engine/files/gguf.hpp"
#include "engine/text/chat_template.hpp"
#include "engine/text/gguf_split.hpp"
#include "engine/text/pipeline_tokenizer.hpp"
#include "engine/text/pre_tokenizer.hpp"
#include "parity_files.hpp"
#include "support/temporary_folder.hpp"
#include "tokenizer_checks.hpp"

#include <catch2/catch.hpp>

#include <cstdint>

namespace attune {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

std::filesystem::path gguf_path(const std::string& name) {
    return std::filesystem::path(ATTUNE_TEST_DATA) / "gguf" / name;
}

GgufValue string_value(std::string text) { return {GgufType::string, std::move(text)}; }
GgufValue flag_value(bool flag) { return {GgufType::boolean, flag}; }
GgufValue number_value(std::uint64_t number) { return {GgufType::u32, number}; }
GgufValue strings_value(std::vector<std::string> strings) {
    GgufArray array;
    array.element = GgufType::string;
    array.strings = std::move(strings);
    return {GgufType::array, std::move(array)};
}
GgufValue numbers_value(std::vector<std::uint64_t> numbers) {
    GgufArray array;
    array.element = GgufType::i32;
    array.integers = std::move(numbers);
    return {GgufType::array, std::move(array)};
}
GgufValue reals_value(std::vector<double> reals) {
    GgufArray array;
    array.element = GgufType::f32;
    array.reals = std::move(reals);
    return {GgufType::array, std::move(array)};
}

/// A header with a byte-level tokenizer: a, b, ab and a control token.
GgufHeader small() {
    GgufHeader header;
    header.file_name = "small.gguf";
    header.metadata = {{"tokenizer.ggml.model", string_value("gpt2")},
                       {"tokenizer.ggml.pre", string_value("gpt-2")},
                       {"tokenizer.ggml.tokens", strings_value({"a", "b", "ab", "<s>", "<", "s", ">"})},
                       {"tokenizer.ggml.token_type", numbers_value({1, 1, 1, 3, 1, 1, 1})},
                       {"tokenizer.ggml.merges", strings_value({"a b"})},
                       {"tokenizer.ggml.bos_token_id", number_value(3)}};
    return header;
}

void set(GgufHeader& header, const std::string& key, GgufValue value) {
    for (auto& [name, old] : header.metadata) {
        if (name == key) {
            old = std::move(value);
            return;
        }
    }
    header.metadata.emplace_back(key, std::move(value));
}

std::shared_ptr<const Tokenizer> made(const GgufHeader& header) {
    auto parts = parts_of_gguf(header);
    if (!parts) FAIL(parts.error().message);
    return PipelineTokenizer::assemble(std::move(*parts));
}

}  // namespace

TEST_CASE("the tokenizer inside a GGUF file gives the ids of the original", "[engine][text][parity][gguf]") {
    const std::string name =
        GENERATE(as<std::string>(), "deepseek_v3", "gemma", "gpt2", "llama2", "llama3", "o200k", "qwen2", "smollm");
    const auto tokenizer = Tokenizer::open(gguf_path("tokenizers/" + name + ".gguf"));
    if (!tokenizer) FAIL(tokenizer.error().message);
    const std::string folder = "tokenizers/" + name;
    check_corpus(**tokenizer, "gguf/" + folder, parity_path(folder + "/corpus_expected.jsonl"));
    check_streams(**tokenizer, "gguf/" + folder, parity_path(folder + "/stream_expected.jsonl"));
}

TEST_CASE("GGUF files with a broken vocabulary are refused, naming the key", "[engine][text][gguf]") {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"vocab_no_tokens", "tokenizer.ggml.tokens"},       {"vocab_tokens_ints", "tokenizer.ggml.tokens"},
        {"vocab_types_short", "tokenizer.ggml.token_type"}, {"vocab_merge_unknown", "tokenizer.ggml.merges"},
        {"vocab_merge_one_word", "tokenizer.ggml.merges"},  {"vocab_bos_range", "tokenizer.ggml.bos_token_id"},
        {"vocab_model_unknown", "tokenizer.ggml.model"}};
    std::size_t listed = 0;
    for (const json& row : json::parse(read_text(gguf_path("bad/index.json")))) {
        listed += row.at("file").get<std::string>().starts_with("vocab_");
    }
    CHECK(listed == cases.size());
    for (const auto& [file, key] : cases) {
        INFO(file);
        const auto path = gguf_path("bad/" + file + ".gguf");
        const auto tokenizer = Tokenizer::open(path);
        REQUIRE_FALSE(tokenizer);
        CHECK(tokenizer.error().message.find(key) != std::string::npos);
        CHECK(tokenizer.error().message.find(path.parent_path().string()) == std::string::npos);
    }
}

TEST_CASE("a GGUF file's control tokens count only outside of literal text", "[engine][text][gguf]") {
    const auto tokenizer = made(small());
    CHECK(tokenizer->encode("<s>ab", false) == Ids{3, 2});
    const std::vector<TextSpan> all{{0, 5, true}};
    CHECK(tokenizer->encode("<s>ab", false, all) == Ids{4, 5, 6, 2});
    CHECK(tokenizer->is_special(3));
    // Not even a merge makes one out of text.
    GgufHeader header = small();
    set(header, "tokenizer.ggml.merges", strings_value({"< >", "s >"}));
    set(header, "tokenizer.ggml.tokens", strings_value({"a", "b", "ab", "<>", "<", "s", ">", "s>"}));
    set(header, "tokenizer.ggml.token_type", numbers_value({1, 1, 1, 3, 1, 1, 1, 1}));
    const std::vector<TextSpan> text{{0, 2, true}};
    CHECK(made(header)->encode("<>", false) == Ids{3});
    CHECK(made(header)->encode("<>", false, text) == Ids{4, 6});
}

TEST_CASE("a GGUF file says whether bos and eos are added", "[engine][text][gguf]") {
    GgufHeader header = small();
    CHECK(made(header)->encode("ab", true) == Ids{2});
    set(header, "tokenizer.ggml.add_bos_token", flag_value(true));
    CHECK(made(header)->encode("ab", true) == Ids{3, 2});
    CHECK(made(header)->encode("ab", false) == Ids{2});
    set(header, "tokenizer.ggml.add_eos_token", flag_value(true));
    const auto missing = parts_of_gguf(header);
    REQUIRE_FALSE(missing);
    CHECK(missing.error().message.find("tokenizer.ggml.eos_token_id") != std::string::npos);
    set(header, "tokenizer.ggml.eos_token_id", number_value(3));
    CHECK(made(header)->encode("ab", true) == Ids{3, 2, 3});
    // Llama 3's files need no flag.
    set(header, "tokenizer.ggml.pre", string_value("llama-bpe"));
    header.metadata.erase(header.metadata.begin() + 6, header.metadata.begin() + 8);
    CHECK(made(header)->encode("ab", true) == Ids{3, 2});
}

TEST_CASE("pieces of equal score are joined from the left", "[engine][text][gguf]") {
    GgufHeader header;
    header.file_name = "small.gguf";
    header.metadata = {{"tokenizer.ggml.model", string_value("llama")},
                       {"tokenizer.ggml.tokens", strings_value({"<unk>", "a", "aa", "aaa", "b", "ba", "<0x63>"})},
                       {"tokenizer.ggml.token_type", numbers_value({2, 1, 1, 1, 1, 1, 6})},
                       {"tokenizer.ggml.scores", reals_value({0, -9, -2, -3, -9, -2, 0})},
                       {"tokenizer.ggml.unknown_token_id", number_value(0)},
                       {"tokenizer.ggml.add_space_prefix", flag_value(false)}};
    const auto tokenizer = made(header);
    CHECK(tokenizer->encode("aaaa", false) == Ids{2, 2});
    CHECK(tokenizer->encode("aaaaa", false) == Ids{2, 3});
    CHECK(tokenizer->encode("aabaa", false) == Ids{2, 5, 1});
    CHECK(tokenizer->encode("c", false) == Ids{6});
    CHECK(tokenizer->encode("dd", false) == Ids{0});
    set(header, "tokenizer.ggml.scores", reals_value({0, 1}));
    const auto few = parts_of_gguf(header);
    REQUIRE_FALSE(few);
    CHECK(few.error().message.find("tokenizer.ggml.scores") != std::string::npos);
}

TEST_CASE("a GGUF split name that is not known is refused by name", "[engine][text][gguf]") {
    GgufHeader header = small();
    set(header, "tokenizer.ggml.pre", string_value("made-up"));
    const auto parts = parts_of_gguf(header);
    REQUIRE_FALSE(parts);
    CHECK(parts.error().code == Errc::unsupported);
    CHECK(parts.error().message.find("made-up") != std::string::npos);
    set(header, "tokenizer.ggml.model", string_value("bert"));
    const auto bert = parts_of_gguf(header);
    REQUIRE_FALSE(bert);
    CHECK(bert.error().code == Errc::unsupported);
    header.metadata.clear();
    const auto none = parts_of_gguf(header);
    REQUIRE_FALSE(none);
    CHECK(none.error().code == Errc::not_found);
}

TEST_CASE("each known GGUF split name has patterns that compile", "[engine][text][gguf]") {
    for (const char* pre :
         {"default",    "llama-bpe", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon",   "mpt",
          "starcoder",  "gpt-2",     "refact",       "command-r",      "qwen2",       "qwen35",   "stablelm2",
          "olmo",       "dbrx",      "smaug-bpe",    "poro-chat",      "chatglm-bpe", "viking",   "jais",
          "codeshell",  "tekken",    "smollm",       "gpt-4o",         "llama4",      "superbpe", "jais-2",
          "bailingmoe", "tiny_aya",  "seed-coder"}) {
        INFO(pre);
        const auto split = gguf_split(pre);
        REQUIRE(split);
        CHECK(PreTokenizer::parse(split->pre_tokenizer));
    }
}

/// A GGUF file of version 3 without tensors, all of its metadata texts or lists of texts, and a bos id.
std::string gguf_bytes(const std::vector<std::pair<std::string, std::string>>& texts,
                       const std::vector<std::string>& tokens, std::uint32_t bos) {
    std::string out = "GGUF";
    const auto number = [&out](std::uint64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
    };
    const auto text = [&](std::string_view value) {
        number(value.size(), 8);
        out += value;
    };
    constexpr std::uint64_t kU32 = 4;
    constexpr std::uint64_t kString = 8;
    constexpr std::uint64_t kArray = 9;
    number(3, 4);
    number(0, 8);
    number(texts.size() + 2, 8);
    for (const auto& [key, value] : texts) {
        text(key);
        number(kString, 4);
        text(value);
    }
    text("tokenizer.ggml.tokens");
    number(kArray, 4);
    number(kString, 4);
    number(tokens.size(), 8);
    for (const std::string& token : tokens) text(token);
    text("tokenizer.ggml.bos_token_id");
    number(kU32, 4);
    number(bos, 4);
    out.resize((out.size() + 31) / 32 * 32, '\0');
    return out;
}

TEST_CASE("a GGUF file's chat template is rendered with its own tokens", "[engine][text][gguf][chat]") {
    const auto none = ChatTemplate::open(gguf_path("tokenizers/llama3.gguf"));
    REQUIRE(none);
    CHECK(*none == nullptr);
    const TemporaryFolder folder;
    const auto open = [&](const std::vector<std::pair<std::string, std::string>>& texts, std::uint32_t bos) {
        folder.write("x.gguf", gguf_bytes(texts, {"a", "<s>"}, bos));
        return ChatTemplate::open(folder.path() / "x.gguf");
    };
    ChatPrompt chat;
    chat.messages_json = R"([{"role": "user", "content": "hi"}])";
    const auto plain = open({{"tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}"}}, 1);
    if (!plain) FAIL(plain.error().message);
    CHECK((*plain)->render(chat)->text == "<s>hi");
    const auto two =
        open({{"tokenizer.chat_template", "plain"}, {"tokenizer.chat_template.tool_use", "{{ bos_token }}tools"}}, 0);
    REQUIRE(two);
    CHECK((*two)->render(chat)->text == "plain");
    chat.tools_json = "[]";
    CHECK((*two)->render(chat)->text == "atools");
    const auto out_of_range = open({{"tokenizer.chat_template", "plain"}}, 2);
    REQUIRE_FALSE(out_of_range);
    CHECK(out_of_range.error().message.find("tokenizer.ggml.bos_token_id") != std::string::npos);
    CHECK_FALSE(open({{"tokenizer.chat_template", "{% if %}"}}, 1));
    CHECK_FALSE(ChatTemplate::open(gguf_path("bad/magic_wrong.gguf")));
}

}  // namespace attune
