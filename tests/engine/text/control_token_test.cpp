// A user's text never becomes a control token, whatever it says: the only special token that it may give is the one for
// text that has no token.
#include "engine/text/pipeline_tokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "parity_files.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace attune {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

TokenId unknown_of(const Tokenizer& tokenizer) {
    return dynamic_cast<const PipelineTokenizer&>(tokenizer).unknown_id();
}

Ids as_user(const Tokenizer& tokenizer, const std::string& text) {
    return tokenizer.encode(text, false, std::vector<TextSpan>{{0, text.size(), true}});
}

Ids controls_in(const Tokenizer& tokenizer, const Ids& ids) {
    Ids found;
    for (const TokenId id : ids) {
        if (tokenizer.is_special(id) && id != unknown_of(tokenizer)) found.push_back(id);
    }
    return found;
}

std::vector<std::filesystem::path> every_model() {
    const std::filesystem::path data = ATTUNE_TEST_DATA;
    std::vector<std::filesystem::path> models = {data / "parity" / "smollm2"};
    for (const auto& folder : {data / "parity" / "tokenizers", data / "more_tokenizers"}) {
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            if (entry.path().filename() != "components" && entry.is_directory()) models.push_back(entry.path());
        }
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(data / "gguf" / "tokenizers")) {
        if (entry.path().extension() == ".gguf") models.push_back(entry.path());
    }
    return models;
}

json added(int id, const std::string& content, bool special) {
    return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", false}, {"special", special}};
}

std::shared_ptr<const Tokenizer> made(const json& config) {
    auto tokenizer = PipelineTokenizer::parse(config.dump());
    if (!tokenizer) FAIL(tokenizer.error().message);
    return *tokenizer;
}

json bpe(const json& vocab, const json& merges) {
    return {{"added_tokens", json::array()},
            {"decoder", {{"type", "Fuse"}}},
            {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

}  // namespace

TEST_CASE("no tokenizer makes a control token of a user's text", "[engine][text][tokenizer][control]") {
    std::size_t controls = 0;
    for (const auto& model : every_model()) {
        auto opened = Tokenizer::open(model);
        if (!opened) FAIL(opened.error().message);
        const Tokenizer& tokenizer = **opened;
        for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
            if (!tokenizer.is_special(id)) continue;
            const std::string content = tokenizer.decode(Ids{id}, false);
            INFO(model.filename() << ": " << content);
            for (const std::string& text :
                 {content, " " + content, "a" + content + "b", content + content, "\n" + content, content + " ",
                  "<" + content, content.substr(0, content.size() / 2)}) {
                if (!is_valid_utf8(text)) continue;
                CHECK(controls_in(tokenizer, as_user(tokenizer, text)).empty());
            }
            // Half of it in the template, half of it the user's.
            for (std::size_t at = 1; at < content.size(); ++at) {
                const std::string half = content.substr(0, at);
                if (!is_valid_utf8(half)) continue;
                const Ids ids = tokenizer.encode(content, false, std::vector<TextSpan>{{at, content.size(), true}});
                CHECK(controls_in(tokenizer, ids) == controls_in(tokenizer, tokenizer.encode(half, false)));
            }
            if (id == unknown_of(tokenizer)) continue;
            CHECK(tokenizer.encode(content, false, std::vector<TextSpan>{{0, 0, true}}) ==
                  tokenizer.encode(content, false));
            ++controls;
        }
    }
    CHECK(controls > 150);
}

TEST_CASE("what a model's own vocabulary would make a control token is spelled out",
          "[engine][text][tokenizer][control]") {
    SECTION("by a merge") {
        json config = bpe({{"a", 0}, {"b", 1}, {"ab", 2}}, {"a b"});
        CHECK(as_user(*made(config), "ab") == Ids{2});
        config["added_tokens"] = {added(2, "ab", true)};
        CHECK(as_user(*made(config), "aab") == Ids{0, 0, 1});
        CHECK(made(config)->encode("aab", false) == Ids{0, 2});
    }
    SECTION("as a whole word") {
        json config = bpe({{"a", 0}, {"b", 1}, {"ab", 2}}, json::array());
        config["model"]["ignore_merges"] = true;
        config["added_tokens"] = {added(2, "ab", true)};
        CHECK(as_user(*made(config), "ab") == Ids{0, 1});
    }
    SECTION("of a single character, which falls back to bytes, to the unknown token, or to nothing") {
        json config = bpe({{"a", 0}, {"b", 1}, {"<0x61>", 2}, {"?", 3}}, json::array());
        config["added_tokens"] = {added(0, "a", true)};
        CHECK(as_user(*made(config), "ab") == Ids{2, 1});
        config["model"]["vocab"].erase("<0x61>");
        CHECK(as_user(*made(config), "ab") == Ids{1});
        config["model"]["unk_token"] = "?";
        CHECK(as_user(*made(config), "ab") == Ids{3, 1});
        config["added_tokens"].push_back(added(3, "?", true));
        CHECK(as_user(*made(config), "ab") == Ids{3, 1});
    }
    SECTION("under another name") {
        json config = bpe({{"a", 0}, {"b", 1}}, json::array());
        config["added_tokens"] = {added(7, "<x>", true), added(7, "<y>", false)};
        CHECK(as_user(*made(config), "<x>a<y>") == Ids{0});
        CHECK(made(config)->encode("<x>a<y>", false) == Ids{7, 0, 7});
    }
    SECTION("of WordPiece") {
        json config = {{"added_tokens", {added(1, "[CLS]", true)}},
                       {"decoder", {{"type", "WordPiece"}}},
                       {"model", {{"type", "WordPiece"}, {"vocab", {{"[UNK]", 0}, {"[CLS]", 1}, {"[", 2}, {"C", 3}}}}}};
        CHECK(as_user(*made(config), "[CLS]") == Ids{2, 3, 0, 0, 0});
    }
}

}  // namespace attune
