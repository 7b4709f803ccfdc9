#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using namespace std::chrono_literals;

namespace {

/// The base's template writes 4 tokens; `a` and `alike` bring one of 6, `b` another of 7, `plain` none.
class OwnTemplateFixture : public HouseFixture {
public:
    OwnTemplateFixture() {
        for (const char* name : {"a", "alike", "b", "plain"}) disk[std::string("root/") + name] = FakeSource{name};
        disk["root/a"].chat_template = disk["root/alike"].chat_template = "write6";
        disk["root/b"].chat_template = "writes7";
    }
    void begin() {
        start();
        core->prepare.chat_template = std::make_shared<FakeTemplate>("base");
    }
    GenerationRequest chat(const std::string& model, std::vector<WeightedModule> modules = {}) {
        GenerationRequest wish = request(model);
        wish.prompt = ChatPrompt{R"([{"role":"user","content":"about a contract"}])", {}, {}, {}};
        wish.modules = std::move(modules);
        return wish;
    }
    int prompt_tokens(const Seen& seen) {
        REQUIRE(seen->ok());
        return seen->admitted->prompt_tokens;
    }
    Result<TokenizeResult> tokenize(const std::string& model, Prompt prompt) {
        Result<TokenizeResult> answer = make_error(Errc::internal, "no answer");
        gateway->tokenize({model, std::move(prompt), {}}, [&](Result<TokenizeResult> got) { answer = std::move(got); });
        run();
        return answer;
    }
};

}  // namespace

TEST_CASE_METHOD(OwnTemplateFixture, "a module's own template writes its prompt, under wait whatever the policy",
                 "[actors][router][B28]") {
    begin();
    for (const ColdPolicy policy : {ColdPolicy::fallback, ColdPolicy::upgrade, ColdPolicy::revise, ColdPolicy::wait}) {
        order("a", ModuleOrder::unload);
        hold_loads(true);
        GenerationRequest wish = chat("a");
        wish.cold = policy;
        const Seen seen = ask(wish);
        CHECK_FALSE(seen->admitted.has_value());
        hold_loads(false);
        run();
        CHECK(prompt_tokens(seen) == 6);
        CHECK(seen->admitted->cold == ColdWord::wait);
        CHECK(seen->text == "aaa");
    }
    const Seen warm = ask(chat("a"));
    CHECK(prompt_tokens(warm) == 6);
    CHECK(warm->admitted->cold == ColdWord::warm);
    CHECK(prompt_tokens(ask(chat("base"))) == 4);
    CHECK(prompt_tokens(ask(chat("plain"))) == 4);
}

TEST_CASE_METHOD(OwnTemplateFixture, "a wait for a module with its own template ends like any other",
                 "[actors][router]") {
    begin();
    hold_loads(true);
    GenerationRequest wish = chat("a");
    wish.timeout_ms = 500;
    const Seen late = ask(wish);
    pass(600ms);
    CHECK(late->code() == Errc::timeout);
    const Seen left = ask(chat("a"));
    gateway->cancel(last_id());
    run();
    CHECK(left->code() == Errc::cancelled);
    hold_loads(false);
    run();
    CHECK(cache().leases.empty());
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    order("a", ModuleOrder::unload);
    CHECK(ask(chat("a"))->code() == Errc::invalid_module);
}

TEST_CASE_METHOD(OwnTemplateFixture, "modules that bring one template go together, those of two are refused by name",
                 "[actors][router]") {
    begin();
    CHECK(prompt_tokens(ask(chat("base", {{"plain"}, {"a"}, {"alike"}}))) == 6);
    const Seen refused = ask(chat("base", {{"plain"}, {"a"}, {"b"}}));
    REQUIRE(refused->error);
    CHECK(refused->error->code == Errc::invalid_argument);
    CHECK(refused->error->message ==
          "modules `a` and `b` bring different chat templates: one request can follow one of them");
    CHECK(cache().leases.empty());
    // One that is switched off has no say, and ids need no template.
    CHECK(prompt_tokens(ask(chat("base", {{"a", 0}, {"b", 1}}))) == 7);
    CHECK(prompt_tokens(ask(chat("base", {{"a", 0}, {"plain", 1}}))) == 4);
    GenerationRequest ids = request("base");
    ids.modules = {{"a"}, {"b"}};
    CHECK(prompt_tokens(ask(ids)) == 3);
}

TEST_CASE_METHOD(OwnTemplateFixture, "a module that the rules choose writes the prompt by its own template",
                 "[actors][router]") {
    RouteRule rule;
    rule.modules = {{"b", 1.0}};
    rule.keywords = {"contract"};
    disk["root/b"].rule = rule;
    begin();
    const Seen seen = ask(chat("auto"));
    CHECK(prompt_tokens(seen) == 7);
    CHECK(seen->admitted->route.rule == "keyword");
}

TEST_CASE_METHOD(OwnTemplateFixture, "a template that the headers did not show is never mixed with the base's",
                 "[actors][router]") {
    disk["root/a"].inspected = false;
    begin();
    // Under wait the prompt is the base's by now: the request ends, the next one knows.
    GenerationRequest wish = chat("a");
    wish.cold = ColdPolicy::wait;
    CHECK(ask(wish)->code() == Errc::unavailable);
    CHECK(prompt_tokens(ask(chat("a"))) == 6);
    // Under upgrade the base finishes what it began.
    order("a", ModuleOrder::unload);
    hold_loads(true);
    hold_steps(true);
    wish = chat("a");
    wish.cold = ColdPolicy::upgrade;
    wish.sampling.max_tokens = 50;
    const Seen upgraded = ask(wish);
    hold_loads(false);
    run();
    hold_steps(false);
    run();
    CHECK(prompt_tokens(upgraded) == 4);
    CHECK_FALSE(upgraded->switched.has_value());
    CHECK(upgraded->text == std::string(50, '.'));
    CHECK(cache().leases.empty());
}

TEST_CASE_METHOD(OwnTemplateFixture, "tokenize loads a module whose own template it needs", "[actors][router]") {
    begin();
    const ChatPrompt chat{R"([{"role":"user","content":"x"}])", {}, {}, {}};
    CHECK(tokenize("base", chat)->tokens.size() == 4);
    CHECK(tokenize("plain", chat)->tokens.size() == 4);
    CHECK(tier("plain") == Tier::cold);
    CHECK(tokenize("b", TextPrompt{"raw", true})->tokens.size() == 3);
    CHECK(tier("b") == Tier::cold);
    CHECK(tokenize("b", chat)->tokens.size() == 7);
    CHECK(tier("b") >= Tier::host);
    CHECK(tokenize("b", chat)->tokens.size() == 7);
    CHECK(loads_of["root/b"] == 1);
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    for (int i = 0; i < 3; ++i) {
        const auto failed = tokenize("a", chat);
        REQUIRE_FALSE(failed);
        CHECK(failed.error().code == Errc::invalid_module);
    }
    CHECK(loads_of["root/a"] == 1);
}

TEST_CASE_METHOD(HouseFixture, "a name in decomposed letters is the composed one's", "[actors][router][names]") {
    struct Case {
        const char* listed;
        const char* asked;
        bool same;
    };
    const std::initializer_list<Case> cases = {
        {"café", "cafe\u0301", true},
        {"ば", "\u306F\u3099", true},
        {"한국", "\u1112\u1161\u11AB\u1100\u116E\u11A8", true},
        {"Ünïcode", "U\u0308ni\u0308code", true},
        {"法律", "法律", true},
        {"法律", "ｈｏｕ", false},
        {"code1", "ｃｏｄｅ1", false},  // width and case tell names apart
        {"code1", "Code1", false},
    };
    for (const Case& c : cases) disk[std::string("root/") + c.listed] = FakeSource{c.listed};
    start();
    for (const Case& c : cases) {
        INFO(c.listed << " and " << c.asked);
        const Seen seen = ask(c.asked);
        CHECK(seen->ok() == c.same);
        if (!c.same) {
            CHECK(seen->code() == Errc::unknown_model);
            continue;
        }
        CHECK(seen->admitted->route.modules == std::vector<std::string>{c.listed});
        GenerationRequest twice = request("base");
        twice.modules = {{c.listed}, {c.asked}};
        CHECK(ask(twice)->code() == Errc::invalid_argument);
        CHECK(order(c.asked, ModuleOrder::pin)->ok());
    }
}

TEST_CASE_METHOD(OwnTemplateFixture, "tokenize may name the text of each token", "[actors][router]") {
    begin();
    Result<TokenizeResult> answer = make_error(Errc::internal, "no answer");
    gateway->tokenize({"base", TextPrompt{"Hi", true}, {}, true}, [&](Result<TokenizeResult> got) { answer = got; });
    run();
    REQUIRE(answer);
    CHECK(answer->texts == std::vector<std::string>{"H", "i"});
    CHECK_FALSE(tokenize("base", TextPrompt{"Hi", true})->texts);
}
