#include "router_fixture.hpp"

using namespace attune;
using namespace std::chrono_literals;

TEST_CASE_METHOD(RouterFixture, "the base by its id is explicit, warm and served by nobody else", "[actors][router]") {
    start();
    const Seen seen = ask("base", 2);
    REQUIRE(seen->ok());
    CHECK(seen->admitted->route.rule == "explicit");
    CHECK(seen->admitted->route.modules.empty());
    CHECK(seen->admitted->cold == ColdWord::warm);
    CHECK(seen->admitted->prompt_tokens == 3);
    CHECK(seen->text == "..");
    CHECK(seen->finished->served[0].modules.empty());
}

TEST_CASE_METHOD(RouterFixture, "a cancel while the prompt is prepared ends the request and its lease",
                 "[actors][router][C4]") {
    start();
    hold_prompts(true);
    hold_loads(true);
    const Seen seen = ask(with_policy(ColdPolicy::wait));
    gateway->cancel(last_id());
    run();
    CHECK(seen->code() == Errc::cancelled);
    CHECK(cache().leases.empty());
    hold_prompts(false);
    hold_loads(false);
    run();
    CHECK(seen->ended());
    CHECK(engine->steps == 0);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a cancel while the module loads ends the request and its lease",
                 "[actors][router][C4]") {
    start();
    hold_loads(true);
    const Seen seen = ask(with_policy(ColdPolicy::wait));
    CHECK(cache().leases.size() == 1);
    gateway->cancel(last_id());
    run();
    CHECK(seen->code() == Errc::cancelled);
    CHECK(cache().leases.empty());
    hold_loads(false);
    run();
    CHECK(seen->ended());
    CHECK(engine->steps == 0);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a load that no loader has begun is taken back when its last waiter leaves",
                 "[actors][router][C4]") {
    settings.modules.loaders = 1;
    start();
    hold_loads(true);
    ask(with_policy(ColdPolicy::wait));
    GenerationRequest other = request("b");
    other.cold = ColdPolicy::wait;
    const Seen seen = ask(other);
    CHECK(cache().host_used == 200);
    gateway->cancel(last_id());
    run();
    CHECK(seen->code() == Errc::cancelled);
    CHECK(cache().host_used == 100);
    CHECK(tier("b") == Tier::cold);
    hold_loads(false);
    run();
    CHECK(loads_of["root/b"] == 0);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a cancel while the module is being installed ends the request and its lease",
                 "[actors][router][C4]") {
    start();
    hold_steps(true);
    const Seen seen = ask(with_policy(ColdPolicy::wait));
    CHECK(tier("a") == Tier::host);
    gateway->cancel(last_id());
    run();
    CHECK(seen->code() == Errc::cancelled);
    hold_steps(false);
    run();
    CHECK(tier("a") == Tier::resident);
    CHECK(cache().copies.begin()->second->users == 0);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "a cancel while the request runs frees it within one step", "[actors][router][C4]") {
    start();
    order("a", ModuleOrder::load);
    hold_steps(true);
    const Seen seen = ask(request("a", 100));
    step();
    step();
    gateway->cancel(last_id());
    run();
    const int before = engine->steps;
    while (engine->running() > 0 && step()) {
    }
    CHECK(engine->steps <= before + 1);
    CHECK(seen->ok());
    hold_steps(false);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "cancels of unknown and ended requests are ignored", "[actors][router][C4]") {
    start();
    gateway->cancel(RequestId{99});
    const Seen seen = ask("base");
    gateway->cancel(last_id());
    run();
    CHECK(seen->ok());
}

TEST_CASE_METHOD(RouterFixture, "beyond the queue limit requests are refused at once with 429", "[actors][router]") {
    settings.scheduler.queue = 3;
    start();
    hold_steps(true);
    std::vector<Seen> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(ask("base"));
    const Seen refused = ask("base");
    CHECK(refused->code() == Errc::overloaded);
    hold_steps(false);
    run();
    for (const Seen& seen : taken) CHECK(seen->ok());
    CHECK(ask("base")->ok());
    CHECK(metrics().find("attune_requests_rejected_total{engine=\"0\",model_name=\"base\",reason=\"overloaded\"} 1") !=
          std::string::npos);
}

TEST_CASE_METHOD(RouterFixture, "while draining new requests are refused and running ones finish", "[actors][router]") {
    start();
    hold_steps(true);
    const Seen running = ask("base", 5);
    core->health->draining = true;
    bool drained = false;
    caf::anon_send(peers->router, drain_atom_v, once<bool>([&](Result<bool> done) { drained = done && *done; }));
    run();
    CHECK_FALSE(drained);
    CHECK(ask("base")->code() == Errc::unavailable);
    CHECK_FALSE(gateway->ready(nullptr));
    hold_steps(false);
    run();
    CHECK(running->ok());
    CHECK(drained);
}

TEST_CASE_METHOD(RouterFixture, "model and attune.modules may not name different modules", "[actors][router]") {
    start();
    GenerationRequest both = request("a");
    both.modules = {{"b", 1.0}};
    const Seen refused = ask(both);
    CHECK(refused->code() == Errc::invalid_argument);
    GenerationRequest same = request("a");
    same.modules = {{"a", 0.5}};
    same.cold = ColdPolicy::wait;
    const Seen seen = ask(same);
    REQUIRE(seen->ok());
    CHECK(seen->finished->served[0].modules[0].weight == 0.5);
}

TEST_CASE_METHOD(RouterFixture, "weights, repeats and the number of modules have limits", "[actors][router]") {
    settings.limits.modules = 2;
    start();
    GenerationRequest heavy = request("base");
    heavy.modules = {{"a", 101.0}};
    CHECK(ask(heavy)->code() == Errc::invalid_argument);
    GenerationRequest twice = request("base");
    twice.modules = {{"a", 1.0}, {"a", 1.0}};
    CHECK(ask(twice)->code() == Errc::invalid_argument);
    GenerationRequest many = request("base");
    many.modules = {{"a", 1}, {"b", 1}, {"c", 1}};
    CHECK(ask(many)->code() == Errc::invalid_argument);
    GenerationRequest off = request("base");
    off.modules = {{"a", 0.0}};
    off.cold = ColdPolicy::wait;
    CHECK(ask(off)->text == "...");  // weight 0 is off, and `served` says base
}

TEST_CASE_METHOD(RouterFixture, "auto asks the rules with the last user message", "[actors][router]") {
    RouteRule rule;
    rule.modules = {{"a", 1.0}};
    rule.keywords = {"contract"};
    disk["root/a"].rule = rule;
    settings.cold.policy = ColdPolicy::wait;
    start();
    GenerationRequest legal = request("auto");
    legal.prompt = TextPrompt{"the contract says", true};
    const Seen routed = ask(legal);
    REQUIRE(routed->ok());
    CHECK(routed->admitted->route.rule == "keyword");
    CHECK(routed->admitted->route.modules == std::vector<std::string>{"a"});
    CHECK(routed->text == "aaa");
    GenerationRequest other = request("auto");
    other.prompt = TextPrompt{"the weather", true};
    const Seen plain = ask(other);
    CHECK(plain->admitted->route.rule == "default");
    CHECK(plain->text == "...");
}

TEST_CASE_METHOD(RouterFixture, "an unmatched auto gets the default module of the settings", "[actors][router][B26]") {
    settings.routing.default_module = "b";
    settings.cold.policy = ColdPolicy::wait;
    start();
    const Seen seen = ask("auto");
    CHECK(seen->text == "bbb");
    CHECK(seen->admitted->route.rule == "default");
}

TEST_CASE_METHOD(RouterFixture, "a failed module is never silently the base", "[actors][router]") {
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    settings.cold.policy = ColdPolicy::wait;
    start();
    CHECK(ask("a")->code() == Errc::invalid_module);
    const Seen upgrade = ask(with_policy(ColdPolicy::upgrade));
    const Seen fallback = ask(with_policy(ColdPolicy::fallback));
    CHECK(upgrade->code() == Errc::invalid_module);
    CHECK(fallback->code() == Errc::invalid_module);
    CHECK(upgrade->text.empty());
}

TEST_CASE_METHOD(RouterFixture, "a bad prompt fails before the engine sees it and frees its lease",
                 "[actors][router]") {
    start();
    GenerationRequest bad = with_policy(ColdPolicy::wait);
    bad.prompt = TokenPrompt{{1, 320}};
    const Seen seen = ask(bad);
    CHECK(seen->code() == Errc::invalid_argument);
    CHECK(seen->error->message.find("prompt[1]") != std::string::npos);
    CHECK(engine->steps == 0);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "when the house stops every request ends", "[actors][router]") {
    start();
    hold_loads(true);
    hold_steps(true);
    const Seen running = ask("base", 50);
    step();
    const Seen waiting = ask(with_policy(ColdPolicy::wait));
    caf::anon_send(peers->router, quit_atom_v);
    run();
    hold_steps(false);
    run();
    CHECK(running->ended());
    CHECK(waiting->code() == Errc::unavailable);
    hold_loads(false);
    check_idle();
}

TEST_CASE_METHOD(RouterFixture, "after the gateway is closed everything is answered all the same", "[actors][router]") {
    start();
    gateway->close();
    CHECK(ask("base")->code() == Errc::unavailable);
    CHECK(load("x", "lib/x")->code() == Errc::unavailable);
    bool answered = false;
    gateway->metrics([&](Result<std::string> text) { answered = !text; });
    CHECK(answered);
}

TEST_CASE_METHOD(RouterFixture, "tokenize and detokenize answer for base and modules, 404 for others",
                 "[actors][router]") {
    start();
    std::vector<TokenId> tokens;
    Errc code = Errc::ok;
    const auto keep = [&](Result<TokenizeResult> result) {
        if (result) tokens = result->tokens;
        code = result ? Errc::ok : result.error().code;
    };
    gateway->tokenize({"a", TextPrompt{"Hi", true}, {}}, keep);
    run();
    CHECK(tokens == std::vector<TokenId>{'H', 'i'});
    gateway->tokenize({"nobody", TextPrompt{"Hi", true}, {}}, keep);
    run();
    CHECK(code == Errc::unknown_model);
    std::string text;
    gateway->detokenize("base", {'H', 'i'}, {}, [&](Result<std::string> result) { text = result ? *result : ""; });
    run();
    CHECK(text == "Hi");
}

TEST_CASE_METHOD(RouterFixture, "the router keeps no prompt of a running request", "[actors][router]") {
    start();
    hold_steps(true);
    auto submission = std::make_shared<Submission>();
    submission->request = request("base", 5);
    submission->request.prompt = TextPrompt{std::string(1000, 'x'), true};
    const auto seen = std::make_shared<SeenAnswer>();
    submission->sink = std::make_shared<OnceSink>(seen);
    caf::anon_send(peers->router, submit_atom_v, submission);
    run();
    CHECK(std::get<TextPrompt>(submission->request.prompt).text.empty());
    hold_steps(false);
    run();
    CHECK(seen->text == ".....");
    CHECK(seen->admitted->prompt_tokens == 1000);
}

TEST_CASE_METHOD(RouterFixture, "tokenize requests beyond the limit are refused and never run", "[actors][router]") {
    class Counting final : public FakeTokenizer {
    public:
        using FakeTokenizer::encode;
        std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override {
            ++runs;
            return FakeTokenizer::encode(text, add_special_tokens);
        }
        mutable int runs = 0;
    };
    start();
    const auto tokenizer = std::make_shared<Counting>();
    core->prepare.tokenizer = tokenizer;
    hold_prompts(true);
    int answered = 0;
    int refused = 0;
    for (int i = 0; i < 300; ++i)
        gateway->tokenize({"base", TextPrompt{"Hi", true}, {}}, [&](Result<TokenizeResult> result) {
            ++answered;
            refused += !result && result.error().code == Errc::overloaded;
        });
    run();
    CHECK(answered == 44);
    CHECK(refused == 44);
    hold_prompts(false);
    run();
    CHECK(answered == 300);
    CHECK(refused == 44);
    CHECK(tokenizer->runs == 256);
}

TEST_CASE_METHOD(RouterFixture, "texts that are only tokenized hold up nobody's answer", "[actors][router][E9]") {
    start();
    hold_tokenize(true);
    int answered = 0;
    for (int i = 0; i < 10; ++i)
        gateway->tokenize({"base", TextPrompt{"Hi", true}, {}}, [&](Result<TokenizeResult>) { ++answered; });
    for (int i = 0; i < 6; ++i) CHECK(ask("base")->ok());
    CHECK(answered == 0);
    hold_tokenize(false);
    run();
    CHECK(answered == 10);
}
