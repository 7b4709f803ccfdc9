#include "component_checks.hpp"
#include "engine/text/pipeline_tokenizer.hpp"
#include "parity_files.hpp"
#include "support/temporary_folder.hpp"
#include "tokenizer_checks.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

std::filesystem::path more_path(const std::string& name) {
    return std::filesystem::path(ATTUNE_TEST_DATA) / "more_tokenizers" / name;
}

std::shared_ptr<const Tokenizer> opened(const std::filesystem::path& path) {
    auto tokenizer = Tokenizer::open(path);
    if (!tokenizer) FAIL(tokenizer.error().message);
    return *tokenizer;
}

Error refused(const std::filesystem::path& path) {
    const auto tokenizer = Tokenizer::open(path);
    REQUIRE_FALSE(tokenizer);
    return tokenizer.error();
}

}  // namespace

TEST_CASE("Unigram and WordPiece give the reference's ids, texts and streams", "[engine][text][parity][more]") {
    const std::string name = GENERATE(as<std::string>(), "unigram_t5", "unigram_bytes", "bert_uncased", "bert_cased");
    const auto tokenizer = opened(more_path(name));
    check_corpus(*tokenizer, name, more_path(name + "/corpus_expected.jsonl"));
    check_streams(*tokenizer, name, more_path(name + "/stream_expected.jsonl"));
}

TEST_CASE("BERT's and SentencePiece's own parts give the reference's texts", "[engine][text][parity][more]") {
    check_normalizers(more_path("components/normalizers.jsonl"));
    check_pre_tokenizers(more_path("components/pre_tokenizers.jsonl"));
    check_decoders(more_path("components/decoders.jsonl"));
}

TEST_CASE("a bare SentencePiece model gives the reference's ids", "[engine][text][parity][more]") {
    const std::string name = GENERATE(as<std::string>(), "spm_bpe", "spm_unigram", "spm_no_prefix");
    const auto tokenizer = opened(more_path(name));
    Tally ids(name + " ids");
    Tally literal(name + " ids with specials as text");
    Tally texts(name + " decoded");
    Tally streams(name + " streams");
    for (const json& row : read_json_lines(more_path(name + "/corpus_expected.jsonl"))) {
        const std::string text = row.at("text");
        const Ids plain = row.at("ids");
        ids.check(tokenizer->encode(text, false) == plain, row.dump());
        ids.check(tokenizer->encode(text, true) == row.at("ids_special").get<Ids>(), row.dump());
        const std::vector<TextSpan> all{{0, text.size(), true}};
        const Ids as_text = row.contains("ids_literal") ? row.at("ids_literal").get<Ids>() : plain;
        literal.check(tokenizer->encode(text, false, all) == as_text, row.dump());
        const auto stream = tokenizer->stream(false);
        std::string streamed;
        for (const TokenId id : plain) streamed += stream->push(id);
        streamed += stream->flush();
        streams.check(streamed == tokenizer->decode(plain, false), row.dump());
        if (row.contains("decoded_plain")) {
            texts.check(tokenizer->decode(plain, false) == row.at("decoded_plain"), row.dump());
        }
    }
    ids.conclude();
    literal.conclude();
    texts.conclude();
    streams.conclude();
}

TEST_CASE("a damaged SentencePiece model is refused", "[engine][text][more]") {
    const TemporaryFolder folder;
    const std::string model = read_text(more_path("spm_bpe/tokenizer.model"));
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{7}, model.size() / 2 + 1}) {
        folder.write("tokenizer.model", model.substr(0, bytes));
        CHECK(refused(folder.path()).code == Errc::invalid_argument);
    }
    folder.write("tokenizer.model", model);
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"7": {"content": "<other>"}}})");
    CHECK(refused(folder.path()).message.find("<other>") != std::string::npos);
}

TEST_CASE("tiktoken files are refused by name", "[engine][text][more]") {
    const TemporaryFolder folder;
    folder.write("tokenizer.model", "IQ== 0\nIg== 1\n");
    CHECK(refused(folder.path()).code == Errc::unsupported);
    CHECK(refused(folder.path()).message.find("tiktoken") != std::string::npos);
    const TemporaryFolder other;
    other.write("qwen.tiktoken", "IQ== 0\n");
    CHECK(refused(other.path()).code == Errc::unsupported);
    CHECK(refused(other.path()).message.find("qwen.tiktoken") != std::string::npos);
    CHECK(refused(other.path()).message.find(other.path().string()) == std::string::npos);
    const TemporaryFolder nothing;
    CHECK(refused(nothing.path()).code == Errc::not_found);
}

TEST_CASE("vocab.json and merges.txt give the ids of the tokenizer.json they came from", "[engine][text][more]") {
    const auto [name, tokenizer_class] =
        GENERATE(table<std::string, std::string>({{"gpt2", "GPT2Tokenizer"}, {"qwen2", "Qwen2TokenizerFast"}}));
    const json whole = json::parse(read_text(parity_path("tokenizers/" + name + "/tokenizer.json")));
    const TemporaryFolder folder;
    folder.write("vocab.json", whole.at("model").at("vocab").dump());
    CHECK(refused(folder.path()).code == Errc::unsupported);
    std::string merges = "#version: 0.2\n";
    for (const json& merge : whole.at("model").at("merges")) {
        merges += merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>() + "\n";
    }
    folder.write("merges.txt", merges);
    CHECK(refused(folder.path()).message.find("tokenizer_class") != std::string::npos);
    json config = {{"tokenizer_class", tokenizer_class}, {"added_tokens_decoder", json::object()}};
    for (const json& token : whole.at("added_tokens")) {
        config["added_tokens_decoder"][std::to_string(token.at("id").get<int>())] = token;
    }
    folder.write("tokenizer_config.json", config.dump());
    const std::string parity = "tokenizers/" + name;
    check_corpus(*opened(folder.path()), "vocab.json of " + name, parity_path(parity + "/corpus_expected.jsonl"));
}

TEST_CASE("added tokens that only tokenizer_config.json lists are honoured", "[engine][text][more]") {
    // The whole tokenizer again, but its added tokens have moved to tokenizer_config.json.
    const std::string name = GENERATE(as<std::string>(), "qwen2", "llama3", "added_zoo");
    json whole = json::parse(read_text(parity_path("tokenizers/" + name + "/tokenizer.json")));
    json decoder = json::object();
    for (const json& token : whole.at("added_tokens")) {
        decoder[std::to_string(token.at("id").get<int>())] = token;
    }
    whole["added_tokens"] = json::array();
    const TemporaryFolder folder;
    folder.write("tokenizer.json", whole.dump());
    folder.write("tokenizer_config.json", json{{"added_tokens_decoder", decoder}}.dump());
    const auto path = parity_path("tokenizers/" + name + "/corpus_expected.jsonl");
    check_corpus(*opened(folder.path()), name + " by tokenizer_config.json", path);
    // An id that is another token's is a contradiction.
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": "<new>", "special": true}}})");
    CHECK(refused(folder.path()).message.find("<new>") != std::string::npos);
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<new>"}}})");
    CHECK(refused(folder.path()).code == Errc::invalid_argument);
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"2147483647": {"content": "<new>"}}})");
    CHECK(refused(folder.path()).message.find("<new>") != std::string::npos);
}

TEST_CASE("a unigram vocabulary of another form is refused", "[engine][text][more]") {
    const auto parse = [](const std::string& model) {
        return PipelineTokenizer::parse("{\"model\": " + model + ", \"decoder\": null}");
    };
    CHECK(parse(R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1.5]]})"));
    for (const char* model :
         {R"({"type": "Unigram", "unk_id": 0, "vocab": {"a": 0}})",
          R"({"type": "Unigram", "unk_id": 0, "vocab": [["a"]]})",
          R"({"type": "Unigram", "unk_id": 0, "vocab": [["a", -1, 2]]})",
          R"({"type": "Unigram", "unk_id": 0, "vocab": [[-1, "a"]]})",
          R"({"type": "Unigram", "unk_id": 0, "vocab": [[["a", 1]]]})",
          R"({"type": "Unigram", "unk_id": 7, "vocab": [["a", -1]]})",
          R"({"type": "Unigram", "unk_id": "a", "vocab": [["a", -1]]})",
          R"({"type": "BPE", "vocab": [["a", -1]], "merges": []})", R"({"type": "WordPiece", "vocab": {"a": 0}})",
          R"({"type": "WordPiece", "unk_token": "a", "vocab": {"a": -1}})"}) {
        INFO(model);
        CHECK_FALSE(parse(model));
    }
}

TEST_CASE("a charsmap that points out of itself changes nothing and breaks nothing", "[engine][text][more]") {
    const auto normalizer = [](std::vector<std::uint8_t> bytes) {
        return Normalizer::parse({{"type", "Precompiled"}, {"precompiled_charsmap", json::binary(std::move(bytes))}});
    };
    CHECK_FALSE(normalizer({1, 2}));
    CHECK_FALSE(normalizer({8, 0, 0, 0, 1, 2, 3, 4}));
    CHECK_FALSE(normalizer({3, 0, 0, 0, 1, 2, 3}));
    std::vector<std::uint8_t> wild = {16, 0, 0, 0};
    for (int i = 0; i < 16; ++i) wild.push_back(0xFF);
    const auto made = normalizer(wild);
    REQUIRE(made);
    NormalText text = NormalText::of("a\xC3\xA9z", false);
    (*made)->apply(text);
    CHECK(text.text == "a\xC3\xA9z");
    CHECK_FALSE(Normalizer::parse({{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}));
}

}  // namespace attune
