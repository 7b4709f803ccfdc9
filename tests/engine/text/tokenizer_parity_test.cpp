#include "engine/text/byte_alphabet.hpp"
#include "engine/text/decoder.hpp"
#include "engine/text/normalizer.hpp"
#include "engine/text/pre_tokenizer.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "parity_files.hpp"
#include "tally.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

/// The older library's value, where the two versions of the reference disagree.
std::string preferred(const json& row, const std::string& field) {
    return row.value(field + "_0_21", row.at(field).get<std::string>());
}

void check_corpus(const Tokenizer& tokenizer, const std::string& folder) {
    Tally ids(folder + " ids");
    Tally literal(folder + " ids with specials as text");
    Tally texts(folder + " decoded");
    for (const json& row : read_json_lines(parity_path(folder + "/corpus_expected.jsonl"))) {
        const std::string text = row.at("text");
        const Ids special = row.at("ids_special");
        ids.check(tokenizer.encode(text, false) == row.at("ids").get<Ids>(), row.dump());
        ids.check(tokenizer.encode(text, true) == special, row.dump());
        const std::vector<TextSpan> all{{0, text.size(), true}};
        const Ids as_text = row.contains("ids_literal") ? row.at("ids_literal") : row.at("ids");
        literal.check(tokenizer.encode(text, false, all) == as_text, row.dump());
        texts.check(tokenizer.decode(special, false) == preferred(row, "decoded"), row.dump());
        texts.check(tokenizer.decode(special, true) == preferred(row, "decoded_skip"), row.dump());
    }
    ids.conclude();
    literal.conclude();
    texts.conclude();
}

/// What the reference's own stream had sent after each id; it may send less than is certain, never more.
std::vector<std::string> slowest(const json& row) {
    std::vector<std::string> sent;
    std::string so_far;
    for (const json& step : row.contains("hf_stream") ? row.at("hf_stream") : row.at("emit")) {
        if (step.is_string()) so_far += step.get<std::string>();
        sent.push_back(so_far);
    }
    return sent;
}

bool is_stream_right(const Tokenizer& tokenizer, const json& row) {
    const auto stream = tokenizer.stream(row.at("skip_special"));
    const bool total_only = row.contains("full_0_21");
    const std::vector<std::string> least = slowest(row);
    std::string sent;
    std::string certain;
    std::size_t at = 0;
    for (const TokenId id : row.at("ids").get<Ids>()) {
        sent += stream->push(id);
        if (!is_valid_utf8(sent)) return false;
        if (row.contains("emit") && !total_only) {
            certain += row.at("emit").at(at).get<std::string>();
            if (sent.size() > certain.size()) return false;
            if (at < least.size() && sent.size() < least[at].size()) return false;
        }
        ++at;
    }
    sent += stream->flush();
    if (!is_valid_utf8(sent)) return false;
    return !row.contains("emit") || sent == preferred(row, "full");
}

void check_streams(const Tokenizer& tokenizer, const std::string& folder) {
    Tally streams(folder + " streams");
    for (const json& row : read_json_lines(parity_path(folder + "/stream_expected.jsonl"))) {
        streams.check(is_stream_right(tokenizer, row), row.dump());
    }
    streams.conclude();
}

/// The rows of components/, one tally for each configuration.
template <class Run>
void check_components(const std::string& file, Run&& run) {
    for (const json& row : read_json_lines(parity_path("tokenizers/components/" + file))) {
        Tally cases(row.at("config").dump());
        run(row.at("config"), row.at("cases"), cases);
        cases.conclude();
    }
}

}  // namespace

TEST_CASE("every normalizer gives the reference's text", "[engine][text][parity]") {
    check_components("normalizers.jsonl", [](const json& config, const json& cases, Tally& tally) {
        const auto normalizer = Normalizer::parse(config);
        REQUIRE(normalizer);
        for (const json& one : cases) {
            NormalText plain = NormalText::of(one.at("in"), false);
            (*normalizer)->apply(plain);
            tally.check(plain.text == one.at("out"), one.dump());
            NormalText tracked = NormalText::of(one.at("in"), true);
            (*normalizer)->apply(tracked);
            tally.check(tracked.text == one.at("out") && tracked.origins.size() == tracked.text.size(), one.dump());
        }
    });
}

TEST_CASE("every pre-tokenizer gives the reference's pieces", "[engine][text][parity]") {
    check_components("pre_tokenizers.jsonl", [](const json& config, const json& cases, Tally& tally) {
        const auto pre_tokenizer = PreTokenizer::parse(config);
        REQUIRE(pre_tokenizer);
        for (const json& one : cases) {
            const std::string text = one.at("in");
            Pieces pieces;
            pieces.list.push_back({text, true});
            (*pre_tokenizer)->apply(pieces);
            std::vector<std::string> found;
            for (const Piece& piece : pieces.list) {
                found.emplace_back();
                if (!(*pre_tokenizer)->ends_in_bytes()) {
                    found.back() = piece.text;
                    continue;
                }
                for (const char byte : piece.text) found.back() += byte_characters()[static_cast<unsigned char>(byte)];
            }
            std::vector<std::string> expected;
            for (const json& piece : one.at("out")) expected.push_back(piece.at(0));
            std::erase(expected, "");  // an empty text is no piece to us
            std::erase(found, "");
            tally.check(found == expected, one.dump());
        }
    });
}

TEST_CASE("every decoder gives the reference's text", "[engine][text][parity]") {
    check_components("decoders.jsonl", [](const json& config, const json& cases, Tally& tally) {
        const auto decoder = Decoder::parse(config);
        REQUIRE(decoder);
        for (const json& one : cases) {
            if (one.at("out").is_null()) continue;  // the reference panics
            const auto state = (*decoder)->start(false);
            std::string text;
            for (const json& token : one.at("in")) state->push(token.get<std::string>(), text);
            state->finish(text);
            tally.check(text == one.at("out"), one.dump());
        }
    });
}

TEST_CASE("SmolLM2's tokenizer gives the reference's ids, texts and streams", "[engine][text][parity]") {
    const auto tokenizer = Tokenizer::open(parity_path("smollm2"));
    REQUIRE(tokenizer);
    check_corpus(**tokenizer, "smollm2");
    check_streams(**tokenizer, "smollm2");
}

TEST_CASE("tokenizers of other families give the reference's ids, texts and streams", "[engine][text][parity][D3]") {
    const std::string name = GENERATE(as<std::string>(), "added_zoo", "deepseek_llm", "deepseek_v3", "gemma", "gpt2",
                                      "gpt2_prefix", "llama2", "llama2_legacy", "llama3", "metaspace_split",
                                      "mistral_v3", "o200k", "qwen2", "smollm", "spm_unk");
    const auto tokenizer = Tokenizer::open(parity_path("tokenizers/" + name));
    REQUIRE(tokenizer);
    check_corpus(**tokenizer, "tokenizers/" + name);
    check_streams(**tokenizer, "tokenizers/" + name);
}

}  // namespace attune
