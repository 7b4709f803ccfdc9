#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

/// The base reads a token a byte; `a` and `alike` know two words more, `b` another one, `plain` none.
class OwnTokenizerFixture : public HouseFixture {
public:
    OwnTokenizerFixture() {
        for (const char* name : {"a", "alike", "b", "plain"}) disk[std::string("root/") + name] = FakeSource{name};
        disk["root/a"].added_tokens = disk["root/alike"].added_tokens = {{"<tool>", fact(320)}, {"<step>", fact(321)}};
        disk["root/b"].added_tokens = {{"<tool>", fact(320)}};
    }
    static AddedTokenFact fact(TokenId id) {
        AddedTokenFact token;
        token.id = id;
        token.special = true;
        return token;
    }
    GenerationRequest text(const std::string& model, const std::string& prompt,
                           std::vector<WeightedModule> modules = {}) {
        GenerationRequest wish = request(model);
        wish.prompt = TextPrompt{prompt, true};
        wish.modules = std::move(modules);
        return wish;
    }
    int prompt_tokens(const Seen& seen) {
        REQUIRE(seen->ok());
        return seen->admitted->prompt_tokens;
    }
    Result<TokenizeResult> tokenize(const std::string& model, const std::string& prompt) {
        Result<TokenizeResult> answer = make_error(Errc::internal, "no answer");
        gateway->tokenize({model, TextPrompt{prompt, true}, {}, true},
                          [&](Result<TokenizeResult> got) { answer = std::move(got); });
        run();
        return answer;
    }
    Result<std::string> detokenize(const std::string& model, std::vector<TokenId> ids) {
        Result<std::string> answer = make_error(Errc::internal, "no answer");
        gateway->detokenize(model, std::move(ids), {}, [&](Result<std::string> got) { answer = std::move(got); });
        run();
        return answer;
    }
};

}  // namespace

TEST_CASE_METHOD(OwnTokenizerFixture, "a module's own tokenizer reads its prompts, under wait whatever the policy",
                 "[actors][router][B28]") {
    start();
    for (const ColdPolicy policy : {ColdPolicy::fallback, ColdPolicy::upgrade, ColdPolicy::revise, ColdPolicy::wait}) {
        order("a", ModuleOrder::unload);
        hold_loads(true);
        GenerationRequest wish = text("a", "x<tool>y");
        wish.cold = policy;
        const Seen seen = ask(wish);
        CHECK_FALSE(seen->admitted.has_value());
        hold_loads(false);
        run();
        CHECK(prompt_tokens(seen) == 3);
        CHECK(seen->admitted->cold == ColdWord::wait);
        CHECK(seen->text == "aaa");
    }
    CHECK(prompt_tokens(ask(text("a", "x<tool>y"))) == 3);
    CHECK(prompt_tokens(ask(text("base", "x<tool>y"))) == 8);
    CHECK(prompt_tokens(ask(text("plain", "x<tool>y"))) == 8);
}

TEST_CASE_METHOD(OwnTokenizerFixture, "only a module's own requests may name its ids", "[actors][router][B28]") {
    start();
    const auto with_ids = [&](const std::string& model, std::vector<TokenId> ids) {
        GenerationRequest wish = request(model);
        wish.prompt = TokenPrompt{std::move(ids)};
        return wish;
    };
    CHECK(prompt_tokens(ask(with_ids("a", {1, 321}))) == 2);
    const Seen refused = ask(with_ids("base", {1, 321}));
    REQUIRE(refused->error);
    CHECK(refused->error->code == Errc::invalid_argument);
    CHECK(refused->error->message == "prompt[1] is 321, the vocabulary ends at 319");
    CHECK(ask(with_ids("b", {1, 321}))->error->message == "prompt[1] is 321, the vocabulary ends at 320");
    GenerationRequest wish = text("a", "x");
    wish.sampling.stop_token_ids = {321};
    CHECK(ask(wish)->ok());
    wish = text("base", "x");
    wish.sampling.stop_token_ids = {321};
    CHECK(ask(wish)->code() == Errc::invalid_argument);
}

TEST_CASE_METHOD(OwnTokenizerFixture, "modules that bring one tokenizer go together, those of two are refused by name",
                 "[actors][router][B28]") {
    start();
    CHECK(prompt_tokens(ask(text("base", "<tool>", {{"plain"}, {"a"}, {"alike"}}))) == 1);
    for (const GenerationRequest& both : {text("base", "x", {{"plain"}, {"a"}, {"b"}}), [&] {
                                              GenerationRequest ids = request("base");
                                              ids.modules = {{"a"}, {"b"}};
                                              return ids;
                                          }()}) {
        GenerationRequest wish = both;
        wish.id = gateway->next_id();
        const Seen refused = ask(wish);
        REQUIRE(refused->error);
        CHECK(refused->error->code == Errc::invalid_argument);
        CHECK(refused->error->message ==
              "modules `a` and `b` bring different tokenizers: one request can follow one of them");
    }
    CHECK(cache().leases.empty());
    // One that is switched off has no say.
    CHECK(prompt_tokens(ask(text("base", "<step>", {{"a", 1}, {"b", 0}}))) == 1);
    CHECK(prompt_tokens(ask(text("base", "<step>", {{"a", 0}, {"plain", 1}}))) == 6);
}

TEST_CASE_METHOD(OwnTokenizerFixture, "a template and a tokenizer may come of two modules", "[actors][router][B28]") {
    disk["root/plain"].chat_template = "w<step>";
    start();
    core->prepare.chat_template = std::make_shared<FakeTemplate>("base<tool>");
    const auto chat = [&](std::vector<WeightedModule> modules) {
        GenerationRequest wish = request("base");
        wish.prompt = ChatPrompt{R"([{"role":"user","content":"x"}])", {}, {}, {}};
        wish.modules = std::move(modules);
        return wish;
    };
    CHECK(prompt_tokens(ask(chat({}))) == 10);
    CHECK(prompt_tokens(ask(chat({{"a"}}))) == 5);
    CHECK(prompt_tokens(ask(chat({{"plain"}}))) == 7);
    CHECK(prompt_tokens(ask(chat({{"plain"}, {"a"}}))) == 2);
}

TEST_CASE_METHOD(OwnTokenizerFixture, "tokenize and detokenize load a module whose own tokenizer they need",
                 "[actors][router][B28]") {
    start();
    CHECK(tokenize("plain", "<tool>")->tokens.size() == 6);
    CHECK(tier("plain") == Tier::cold);
    const auto own = tokenize("a", "x<tool>");
    REQUIRE(own);
    CHECK(own->tokens == std::vector<TokenId>{'x', 320});
    CHECK(own->texts == std::vector<std::string>{"x", "<tool>"});
    CHECK(tier("a") >= Tier::host);
    order("a", ModuleOrder::unload);
    CHECK(*detokenize("a", {320, 'y', 321}) == "<tool>y<step>");
    CHECK(tier("a") >= Tier::host);
    const auto unknown = detokenize("base", {320});
    REQUIRE_FALSE(unknown);
    CHECK(unknown.error().message == "prompt[0] is 320, the vocabulary ends at 319");
    CHECK(unknown.error().param == "tokens");
    disk["root/b"].load_error = make_error(Errc::invalid_module, "broken");
    CHECK(tokenize("b", "x").error().code == Errc::invalid_module);
    CHECK(detokenize("b", {1}).error().code == Errc::invalid_module);
}

TEST_CASE_METHOD(OwnTokenizerFixture, "a tokenizer that the headers did not show is never mixed with the base's",
                 "[actors][router][B28]") {
    disk["root/a"].inspected = false;
    start();
    GenerationRequest wish = text("a", "x<tool>");
    wish.cold = ColdPolicy::wait;
    CHECK(ask(wish)->code() == Errc::unavailable);
    CHECK(prompt_tokens(ask(text("a", "x<tool>"))) == 2);
}
