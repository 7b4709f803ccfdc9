#include "actors/router.hpp"
#include "config/routes_file.hpp"
#include "engine/route/train_classifier.hpp"
#include "house_fixture.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

using namespace attune;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// A house whose routes file is the text `file`; every change of `version` looks like a change of the file.
class RoutingFixture : public HouseFixture {
public:
    RoutingFixture() {
        for (const char* name : {"a", "b", "c"}) disk[std::string("root/") + name] = FakeSource{name};
        settings.cold.policy = ColdPolicy::wait;
        routes.name = "routes.toml";
        routes.read = [this] {
            ++reads;
            return parse_routes(file, "routes.toml");
        };
        routes.stamp = [this](const RouteFile&) { return std::to_string(version); };
        routes.parse = [](const std::string& json) { return parse_routes_json(json, {}); };
    }
    void start_with(const std::string& text) {
        file = text;
        start();
        caf::anon_send(peers->router, routes_atom_v, read_rules(core->routes, nullptr));
        run();
    }
    void write(const std::string& text) {
        file = text;
        ++version;
        pass(RouterState::kLook);
    }
    Seen say(const std::string& text) {
        GenerationRequest asked = request("auto");
        asked.prompt = TextPrompt{text, true};
        return ask(asked);
    }
    std::vector<std::string> modules_for(const std::string& text) {
        const Seen seen = say(text);
        return seen->ok() ? seen->admitted->route.modules : std::vector<std::string>{"failed"};
    }
    RoutesStatus status(const Caller& caller = {}) {
        RoutesStatus status;
        gateway->routes(caller, [&](Result<RoutesStatus> now_status) {
            if (now_status) status = *now_status;
        });
        run();
        return status;
    }
    Result<RoutesStatus> put(const std::string& json) {
        std::optional<Result<RoutesStatus>> answer;
        gateway->put_routes(json, {}, [&](Result<RoutesStatus> result) { answer = std::move(result); });
        run();
        return answer.value();
    }
    Result<RouteTrial> try_route(GenerationRequest asked) {
        std::optional<Result<RouteTrial>> answer;
        gateway->try_route(std::move(asked), [&](Result<RouteTrial> result) { answer = std::move(result); });
        run();
        return answer.value();
    }
    Result<RouteTrial> try_text(const std::string& text, const Caller& caller = {}) {
        GenerationRequest asked = request("auto");
        asked.prompt = TextPrompt{text, true};
        asked.caller = caller;
        return try_route(asked);
    }
    bool has_metric(const std::string& name, const std::string& labels, int value) {
        return metrics().find(name + "{engine=\"0\",model_name=\"base\"" + labels + "} " + std::to_string(value)) !=
               std::string::npos;
    }

    std::string file;
    int version = 1;
    int reads = 0;
};

const char* const kFirst = "[[rule]]\nname = \"words\"\nmodules = [\"a\"]\nkeywords = [\"contract\"]\n";
const char* const kSecond = "[[rule]]\nmodules = [\"b\"]\nkeywords = [\"contract\"]\n";

}  // namespace

TEST_CASE_METHOD(RoutingFixture, "a routes file that changes is read again, and only then", "[actors][routes]") {
    start_with(kFirst);
    CHECK(reads == 1);
    CHECK(modules_for("the contract") == std::vector<std::string>{"a"});
    for (int i = 0; i < 5; ++i) pass(RouterState::kLook);
    CHECK(reads == 1);
    CHECK(status().source == "file");
    write(kSecond);
    CHECK(reads == 2);
    CHECK(modules_for("the contract") == std::vector<std::string>{"b"});
    CHECK(has_metric("attune_routes_loaded_total", ",source=\"file\"", 2));
    CHECK(has_metric("attune_routes_choices_total", ",rule=\"keyword\"", 2));
}

TEST_CASE_METHOD(RoutingFixture, "a broken routes file leaves the last good rules, visibly, until it is mended",
                 "[actors][routes]") {
    start_with(kFirst);
    CHECK(status().last_error.empty());
    write("[[rule]]\nmodules = [\"b\"]\nkeyword = [\"contract\"]\n");
    CHECK(modules_for("the contract") == std::vector<std::string>{"a"});
    CHECK_THAT(status().last_error, Contains("routes.toml, line 3: rule 1") && Contains("keyword"));
    CHECK(status().failed_at.value() > 0);
    CHECK(has_metric("attune_routes_ok", "", 0));
    CHECK(has_metric("attune_routes_refused_total", ",source=\"file\"", 1));
    for (int i = 0; i < 3; ++i) pass(RouterState::kLook);
    CHECK(reads == 2);  // a refused file is not read again while it stays as it is
    write("[[rule]]\nmodules = [\"b\"]\nregex = [\"(\"]\n");
    CHECK_THAT(status().last_error, Contains("rule 1, regex"));
    write(kSecond);
    CHECK(status().last_error.empty());
    CHECK_FALSE(status().failed_at);
    CHECK(has_metric("attune_routes_ok", "", 1));
    CHECK(modules_for("the contract") == std::vector<std::string>{"b"});
}

TEST_CASE_METHOD(RoutingFixture, "no scheduler worker reads the routes file: a preparer does", "[actors][routes]") {
    start_with(kFirst);
    hold_tokenize(true);
    write(kSecond);
    CHECK(reads == 1);
    for (int i = 0; i < 3; ++i) pass(RouterState::kLook);  // one look at a time
    hold_tokenize(false);
    run();
    CHECK(reads == 2);
}

TEST_CASE_METHOD(RoutingFixture, "rules put in force by a request stay until the file changes", "[actors][routes]") {
    start_with(kFirst);
    const auto done = put(R"({"rule": [{"modules": ["c"], "keywords": ["contract"]}], "default": ["b"]})");
    REQUIRE(done);
    CHECK(done->source == "request");
    CHECK(done->routes.rules.at(0).modules.at(0).name == "c");
    CHECK(modules_for("the contract") == std::vector<std::string>{"c"});
    CHECK(modules_for("hello") == std::vector<std::string>{"b"});
    for (int i = 0; i < 3; ++i) pass(RouterState::kLook);
    CHECK(modules_for("the contract") == std::vector<std::string>{"c"});
    CHECK(has_metric("attune_routes_loaded_total", ",source=\"request\"", 1));

    const auto bad = put(R"({"rule": [{"modules": ["b"], "regex": ["("]}]})");
    REQUIRE_FALSE(bad);
    CHECK(bad.error().code == Errc::invalid_argument);
    CHECK_THAT(bad.error().message, Contains("rule 1, regex: \"(\""));
    CHECK(modules_for("the contract") == std::vector<std::string>{"c"});
    CHECK(status().last_error.empty());  // the file is as good as before
    CHECK(has_metric("attune_routes_refused_total", ",source=\"request\"", 1));

    write("[[rule]]\nkeyword = 1\n");
    CHECK(status().source == "request");
    CHECK_FALSE(status().last_error.empty());
    CHECK(modules_for("the contract") == std::vector<std::string>{"c"});
    write(kSecond);
    CHECK(status().source == "file");
    CHECK(modules_for("the contract") == std::vector<std::string>{"b"});
}

TEST_CASE_METHOD(RoutingFixture, "without a routes file rules come by request, or not at all", "[actors][routes]") {
    routes.read = nullptr;
    routes.stamp = nullptr;
    start();
    CHECK(status().source == "none");
    REQUIRE(put(R"({"rule": [{"modules": ["c"], "keywords": ["contract"]}]})"));
    CHECK(modules_for("the contract") == std::vector<std::string>{"c"});
}

TEST_CASE_METHOD(RoutingFixture, "a caller sees no rules of other owners and no preferences of other users",
                 "[actors][routes]") {
    RouteRule own;
    own.modules = {{"a", 1.0}};
    own.keywords = {"x"};
    own.owner = "ann";
    disk["root/a"].rule = own;
    disk["root/a"].owner = "ann";
    start_with(R"(
[[rule]]
modules = ["b"]
keywords = ["all"]
[[rule]]
modules = ["c"]
keywords = ["bob's"]
owner = "bob"
[users]
ann = { tags = ["x"] }
bob = { tags = ["y"] }
)");
    const RoutesStatus all = status(Caller{"boss", true});
    CHECK(all.routes.rules.size() == 2);
    CHECK(all.routes.users.size() == 2);
    CHECK(all.from_modules.size() == 1);
    const RoutesStatus ann = status(Caller{"ann", false});
    REQUIRE(ann.routes.rules.size() == 1);
    CHECK(ann.routes.rules[0].keywords[0] == "all");
    REQUIRE(ann.routes.users.size() == 1);
    CHECK(ann.routes.users[0].user == "ann");
    CHECK(ann.from_modules.size() == 1);
    const RoutesStatus nobody = status(Caller{"", false});
    CHECK(nobody.from_modules.empty());
    CHECK(nobody.routes.users.empty());
}

TEST_CASE_METHOD(RoutingFixture, "trying a route tells rule, modules and reason, and generates nothing",
                 "[actors][routes]") {
    start_with(std::string(kFirst) +
               "[[rule]]\nmodules = [{ name = \"b\", weight = 0.5 }, \"c\"]\ntask_ids = [\"t\"]\n");
    const auto word = try_text("the contract");
    REQUIRE(word);
    CHECK(word->decision.rule == "keyword");
    CHECK(word->decision.name == "words");
    CHECK(word->decision.matched == "contract");
    CHECK(word->why == "keyword `contract` of `words`");
    GenerationRequest task = request("auto");
    task.task_id = "t";
    const auto by_task = try_route(task);
    REQUIRE(by_task);
    REQUIRE(by_task->modules.size() == 2);
    CHECK(by_task->modules[0].weight == 0.5);
    CHECK(by_task->why == "task id `t` of `rule 2`");
    CHECK(try_text("hello")->decision.rule == "default");
    CHECK(try_text("hello")->modules.empty());

    CHECK(try_route(request("base"))->decision.rule == "explicit");
    CHECK(try_route(request("a"))->decision.modules == std::vector<std::string>{"a"});
    CHECK(try_route(request("nobody")).error().code == Errc::unknown_model);
    GenerationRequest twice = request("a");
    twice.modules = {{"b", 1.0}};
    CHECK(try_route(twice).error().code == Errc::invalid_argument);

    CHECK(engine->steps == 0);
    CHECK(loads == 0);
    CHECK(cache().leases.empty());
}

TEST_CASE_METHOD(RoutingFixture, "an owner's module is tried, routed to and tokenised for by its owner's key only",
                 "[actors][routes][owners]") {
    disk["root/a"].owner = "ann";
    start_with(kFirst);
    const Caller ann{"ann", false};
    const Caller bob{"bob", false};
    CHECK(try_text("the contract", ann)->decision.modules == std::vector<std::string>{"a"});
    CHECK(try_text("the contract", Caller{"boss", true})->decision.modules == std::vector<std::string>{"a"});
    const auto other = try_text("the contract", bob);
    REQUIRE(other);
    CHECK(other->decision.rule == "default");
    CHECK(other->decision.skipped == std::vector<std::string>{"words"});
    GenerationRequest named = request("a");
    named.caller = bob;
    CHECK(try_route(named).error().code == Errc::unknown_model);
    CHECK(ask(named)->code() == Errc::unknown_model);
    CHECK(modules(bob).size() == 2);
    for (const Caller& caller : {ann, bob}) {
        Errc code = Errc::internal;
        gateway->tokenize({"a", TextPrompt{"x", true}, caller},
                          [&](Result<TokenizeResult> result) { code = result ? Errc::ok : result.error().code; });
        run();
        CHECK(code == (caller.name == "ann" ? Errc::ok : Errc::unknown_model));
        std::optional<Errc> order;
        gateway->order_module("a", ModuleOrder::load, caller,
                              [&](Result<ModuleStatus> result) { order = result ? Errc::ok : result.error().code; });
        run();
        CHECK(order == (caller.name == "ann" ? Errc::ok : Errc::unknown_model));
    }
}

TEST_CASE_METHOD(RoutingFixture, "a rule whose module is unknown or failed gives way to the next one, and says so",
                 "[actors][routes]") {
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    start_with(
        std::string("default = \"c\"\n[[rule]]\nmodules = [\"nobody\"]\nkeywords = [\"contract\"]\npriority = 2\n") +
        "[[rule]]\nname = \"second\"\nmodules = [\"a\"]\nkeywords = [\"contract\"]\npriority = 1\n" + kSecond);
    CHECK(ask("a")->code() == Errc::invalid_module);  // from now on it is known to have failed
    const Seen seen = say("the contract");
    REQUIRE(seen->ok());
    CHECK(seen->admitted->route.modules == std::vector<std::string>{"b"});
    CHECK(seen->admitted->route.name == "rule 3");
    CHECK(seen->admitted->route.skipped == std::vector<std::string>{"rule 1", "second"});
    CHECK(seen->text == "bbb");
    const auto tried = try_text("the contract");
    REQUIRE(tried);
    CHECK(tried->decision.skipped.size() == 2);
    CHECK_THAT(tried->why, Contains("passed over") && Contains("`rule 1`, `second`"));
    CHECK(cache().leases.empty());
}

TEST_CASE_METHOD(RoutingFixture, "when the default's module cannot be had either, the request fails: never the base",
                 "[actors][routes]") {
    start_with(std::string("default = \"nobody\"\n") +
               "[[rule]]\nmodules = [\"nobody-else\"]\nkeywords = [\"contract\"]\n");
    CHECK(say("the contract")->code() == Errc::unknown_model);
    CHECK(try_text("the contract").error().code == Errc::unknown_model);
    CHECK(engine->steps == 0);
}

TEST_CASE_METHOD(RoutingFixture, "a module that fails its first load gives way to the next rule", "[actors][routes]") {
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    SECTION("before the prompt is written") {}
    SECTION("after it") { hold_loads(true); }
    SECTION("while it is written") {
        hold_loads(true);
        hold_prompts(true);
    }
    start_with(std::string(kFirst) + kSecond);
    const Seen seen = say("the contract");
    hold_loads(false);
    run();
    hold_prompts(false);
    run();
    REQUIRE(seen->ok());
    CHECK(seen->admitted->route.modules == std::vector<std::string>{"b"});
    CHECK(seen->admitted->route.skipped.size() == 1);
    CHECK(seen->admitted->prompt_tokens == say("the contract")->admitted->prompt_tokens);
    CHECK(modules_for("the contract") == std::vector<std::string>{"b"});
}

TEST_CASE_METHOD(RoutingFixture, "a module that was asked for by its name and fails its first load is nobody else's",
                 "[actors][routes]") {
    disk["root/a"].load_error = make_error(Errc::invalid_module, "broken");
    start_with(std::string(kFirst) + kSecond);
    GenerationRequest wish = request("a");
    wish.prompt = TextPrompt{"the contract", true};
    wish.cold = ColdPolicy::wait;
    CHECK(ask(wish)->code() == Errc::invalid_module);
}

TEST_CASE_METHOD(RoutingFixture, "a request gets past a bounded number of rules", "[actors][routes]") {
    std::string many = "default = \"b\"\n";
    for (int i = 0; i < 40; ++i) many += "[[rule]]\nmodules = [\"nobody\"]\nkeywords = [\"contract\"]\n";
    start_with(many);
    CHECK(say("the contract")->code() == Errc::unknown_model);
    CHECK(modules_for("hello") == std::vector<std::string>{"b"});
}

TEST_CASE_METHOD(RoutingFixture, "patterns that were given up are counted", "[actors][routes][regex]") {
    start_with("[[rule]]\nmodules = [\"a\"]\nregex = ['(a+)+(a+)+(a+)+$']\n");
    CHECK(modules_for(std::string(3000, 'a') + "b").empty());
    CHECK(has_metric("attune_routes_pattern_limit_total", "", 1));
}

TEST_CASE_METHOD(RoutingFixture, "explicit choices teach the classifier where that is switched on, and nowhere else",
                 "[actors][routes][classifier]") {
    std::vector<LabelledText> texts;
    for (int i = 0; i < 20; ++i) {
        texts.push_back({"compile this function " + std::to_string(i), "a"});
        texts.push_back({"the court and the tenant " + std::to_string(i), "b"});
    }
    TrainOptions training;
    training.bits = 10;
    auto made = train_classifier(texts, training);
    REQUIRE(made);
    TemporaryFolder folder;
    const auto path = folder.write("router.bin", made->classifier.file_bytes());
    routes.read = [this, path] {
        auto rules = parse_routes(file, "routes.toml");
        rules->classifier->file = path;
        return rules;
    };
    start_with("[classifier]\nfile = \"router.bin\"\nonline = true\n");
    CHECK(modules_for("a function to compile") == std::vector<std::string>{"a"});
    const auto explicit_choice = [&](const std::string& model) {
        GenerationRequest asked = request(model);
        asked.prompt = TextPrompt{"kubernetes pods", true};
        ask(asked);
    };
    for (int i = 0; i < 50; ++i) explicit_choice("a");
    CHECK(status().classifier.value().updates == 50);
    CHECK(status().classifier->labels == std::vector<std::string>{"a", "b"});
    CHECK(status(Caller{"ann", false}).classifier->labels.empty());
    explicit_choice("c");     // a label it does not know
    explicit_choice("base");  // the plain base is most clients' habit, not a choice
    CHECK(status().classifier->updates == 50);
    CHECK(modules_for("kubernetes pods") == std::vector<std::string>{"a"});

    write("[classifier]\nfile = \"router.bin\"\nthreshold = 0.9\n");
    explicit_choice("a");
    CHECK(status().classifier->updates == 50);  // the same file: what it has learned since stays
    CHECK(status().classifier->threshold == 0.9);

    texts.push_back({"a lease ends", "b"});
    const auto other = train_classifier(texts, training);
    REQUIRE(other);
    folder.write("router.bin", other->classifier.file_bytes());
    write("[classifier]\nfile = \"router.bin\"\nthreshold = 0.8\n");
    CHECK(status().classifier->threshold == 0.8);
    CHECK(status().classifier->updates == 0);
}
