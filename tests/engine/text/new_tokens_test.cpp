// A module's tokenizer: the base's with more added tokens (Tokenizer::with_added), held against the `tokenizers`
// library.
#include "engine/text/pipeline_tokenizer.hpp"
#include "parity_files.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace attune {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

std::shared_ptr<const Tokenizer> opened(const std::string& name) {
    auto tokenizer = Tokenizer::open(parity_path(name == "smollm2" ? name : "tokenizers/" + name));
    if (!tokenizer) FAIL(tokenizer.error().message);
    return *tokenizer;
}

std::vector<AddedToken> added_of(const json& list) {
    std::vector<AddedToken> added;
    for (const json& token : list)
        added.push_back({token.at("id"), token.at("content"), token.at("single_word"), token.at("lstrip"),
                         token.at("rstrip"), token.at("normalized"), token.at("special")});
    return added;
}

std::shared_ptr<const Tokenizer> with(const Tokenizer& base, std::vector<AddedToken> added) {
    auto tokenizer = base.with_added(std::move(added));
    if (!tokenizer) FAIL(tokenizer.error().message);
    return *tokenizer;
}

AddedToken token(TokenId id, const std::string& content, bool special = true) {
    return {.id = id, .content = content, .special = special};
}

}  // namespace

TEST_CASE("tokenizers with more added tokens read and write as the library's do", "[engine][text][tokenizer][B28]") {
    int tokenizers = 0;
    int decoded = 0;
    for (const json& row : read_json_lines(std::filesystem::path(ATTUNE_TEST_DATA) / "new_tokens/tokenizers.jsonl")) {
        const auto base = opened(row.at("tokenizer"));
        const std::string text_before = base->decode(base->encode("<|new|> some text", true), false);
        const auto own = with(*base, added_of(row.at("added")));
        for (const json& one : row.at("rows")) {
            const std::string text = one.at("text");
            CAPTURE(row.at("tokenizer"), text);
            const auto ids = one.at("ids").get<Ids>();
            CHECK(own->encode(text, true) == ids);
            if (one.at("decoded").is_string()) {
                CHECK(own->decode(ids, false) == one.at("decoded").get<std::string>());
                CHECK(own->decode(ids, true) == one.at("skipped").get<std::string>());
                ++decoded;
            }
            // A user's text makes no control token, be it the base's or a new one.
            for (const TokenId id : own->encode(text, false, std::vector<TextSpan>{{0, text.size(), true}}))
                for (const json& added : row.at("added"))
                    CHECK_FALSE((added.at("id") == id && added.at("special") == true));
        }
        CHECK(base->decode(base->encode("<|new|> some text", true), false) == text_before);
        ++tokenizers;
    }
    CHECK(tokenizers == 16);
    CHECK(decoded == 147);
}

TEST_CASE("a literal text has the library's ids for encode_special_tokens under new tokens too",
          "[engine][text][tokenizer][control]") {
    // The library lets Unigram make a piece of a token's text, which we spell out: BPE and WordPiece are compared.
    int compared = 0;
    for (const json& row : read_json_lines(std::filesystem::path(ATTUNE_TEST_DATA) / "new_tokens/tokenizers.jsonl")) {
        const auto own = with(*opened(row.at("tokenizer")), added_of(row.at("added")));
        for (const json& one : row.at("rows")) {
            const std::string text = one.at("text");
            CAPTURE(row.at("tokenizer"), text);
            CHECK(own->encode(text, false, std::vector<TextSpan>{{0, text.size(), true}}) ==
                  one.at("literal").get<Ids>());
            ++compared;
        }
    }
    CHECK(compared == 160);
}

TEST_CASE("a token whose id or text is taken is refused by name", "[engine][text][tokenizer]") {
    const auto base = opened("smollm2");
    const auto fault = [&](std::vector<AddedToken> added) {
        const auto refused = base->with_added(std::move(added));
        return refused ? std::string() : refused.error().message;
    };
    CHECK(fault({token(49152, "<a>"), token(49153, "<b>")}).empty());
    CHECK(fault({token(100, "<a>")}) == "added token \"<a>\" (id 100): the vocabulary has another token there");
    CHECK(fault({token(1, "<a>")}) == "added token \"<a>\" (id 1): the vocabulary has another token there");
    CHECK(fault({token(49152, "<a>"), token(49152, "<b>")}) ==
          "added token \"<b>\" (id 49152): another added token has this id");
    CHECK(fault({token(49152, "<a>"), token(49153, "<a>")}) == "added token \"<a>\" (id 49153): it is there already");
    CHECK(fault({token(49152, "the")}).starts_with("added token \"the\" (id 49152): the vocabulary has it as "));
    CHECK(fault({token(49152, "")}) == "added token \"\" (id 49152): it has no text");
    CHECK_FALSE(fault({token(-1, "<a>")}).empty());
    CHECK_FALSE(fault({token(2147483647, "<a>")}).empty());
    // A word of the vocabulary may become an added token under its own id.
    const auto the = base->encode("the", false);
    REQUIRE(the.size() == 1);
    CHECK(fault({token(the[0], "the")}).empty());
}

TEST_CASE("tokenizers made of one base live longer than it", "[engine][text][tokenizer]") {
    auto base = opened("gpt2");
    const auto own = with(*base, {token(60000, "<a>")});
    const auto again = with(*own, {token(60001, "<b>", false)});
    base.reset();
    CHECK(again->encode("<a><b>", false) == Ids{60000, 60001});
    CHECK(again->is_special(60000));
    CHECK_FALSE(again->is_special(60001));
    CHECK(again->token_bytes(60001) == "<b>");
    CHECK(again->vocab_size() == 60002);
    const auto stream = again->stream(false);
    CHECK(stream->push(60001) + stream->push(60000) + stream->flush() == "<b><a>");
}

}  // namespace attune
