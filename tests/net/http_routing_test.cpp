#include "net/net_fixture.hpp"

namespace attune {
namespace {

/// A house with two rules.
struct RoutingFixture : NetFixture {
    RoutesStatus status;
    Caller asked_by;
    std::string put_body;
    GenerationRequest tried;

    RoutingFixture() {
        RouteRule words;
        words.name = "words";
        words.modules = {{"legal", 0.5}};
        words.keywords = {"法条"};
        words.regex = {"§ ?\\d+"};
        words.first_tokens = 32;
        words.priority = 7;
        RouteRule tasks;
        tasks.modules = {};
        tasks.task_ids = {"plain"};
        tasks.owner = "ann";
        status.routes.rules = {words, tasks};
        status.routes.users = {{"ann", {"legal"}, {{"code", 1.0}}}};
        status.routes.default_modules = {{"chat", 1.0}};
        status.routes.classifier = ClassifierChoice{"/etc/attune/router.bin", 0.75, true};
        status.classifier = ClassifierStatus{"router.bin", {"a", ""}, 0.75, true, 3};
        status.source = "file";
        status.file = "routes.toml";
        status.since = 1790000000;
        gateway.on_routes = [this](const Caller& caller) {
            asked_by = caller;
            return Result<RoutesStatus>(status);
        };
        gateway.on_put_routes = [this](const std::string& json, const Caller&) -> Result<RoutesStatus> {
            put_body = json;
            if (json.find("bad") != std::string::npos)
                return make_error(Errc::invalid_argument, "routes: rule 2: matches nothing");
            return status;
        };
        gateway.on_try_route = [this](const GenerationRequest& request) -> Result<RouteTrial> {
            tried = request;
            if (request.model == "nobody")
                return make_error(Errc::unknown_model, "The model `nobody` does not exist.", "model");
            RouteTrial trial;
            trial.decision = RouteDecision{"keyword", {"legal"}, "words", "法条", 0, {"rule 1"}};
            trial.modules = {{"legal", 0.5}};
            trial.why = "keyword `法条` of `words`";
            return trial;
        };
    }
    boost::json::value try_route(const std::string& body, int expected = 200) {
        const auto reply = client().post("/v1/routes/try", body);
        INFO(body << " -> " << reply.body);
        CHECK(reply.status == expected);
        return parsed(reply.body);
    }
};

TEST_CASE_METHOD(RoutingFixture, "the rules in force are told in the form that can be put again",
                 "[net][http][routes]") {
    const auto reply = client().get("/v1/routes");
    REQUIRE(reply.status == 200);
    const auto json = parsed(reply.body);
    CHECK(text_at(json, "/object") == "routes");
    CHECK(text_at(json, "/source") == "file");
    CHECK(text_at(json, "/file") == "routes.toml");
    CHECK(text_at(json, "/status") == "ok");
    CHECK(at(json, "/failed_at").is_null());
    CHECK(int_at(json, "/since") == 1790000000);
    CHECK(at(json, "/routes") == parsed(R"({"default":[{"name":"chat","weight":1.0}],"rule":[
        {"name":"words","modules":[{"name":"legal","weight":0.5}],"keywords":["法条"],"regex":["§ ?\\d+"],
         "first_tokens":32,"priority":7},
        {"modules":[],"task_ids":["plain"],"owner":"ann"}],
        "users":{"ann":{"tags":["legal"],"modules":[{"name":"code","weight":1.0}]}},
        "classifier":{"file":"router.bin","online":true,"threshold":0.75}})"));
    CHECK(at(json, "/classifier") ==
          parsed(R"({"file":"router.bin","labels":["a",""],"threshold":0.75,"online":true,"updates":3})"));
    CHECK(reply.body.find("/etc") == std::string::npos);
}

TEST_CASE_METHOD(RoutingFixture, "a refused file shows as the status, with its time", "[net][http][routes]") {
    status.last_error = "routes.toml, line 3: rule 1: unknown key keyword";
    status.failed_at = 1790000001;
    status.classifier.reset();
    const auto json = parsed(client().get("/v1/routes").body);
    CHECK(text_at(json, "/status") == status.last_error);
    CHECK(int_at(json, "/failed_at") == 1790000001);
    CHECK(at(json, "/classifier").is_null());
}

TEST_CASE_METHOD(RoutingFixture, "rules that are put reach the house whole, and a fault is 400",
                 "[net][http][routes]") {
    const auto good = client().request("PUT", "/v1/routes", R"({"rule":[],"default":"法"})", {});
    CHECK(good.status == 200);
    CHECK(put_body == R"({"rule":[],"default":"法"})");
    CHECK(text_at(parsed(good.body), "/object") == "routes");
    status.source = "request";
    const auto noted = client().request("PUT", "/v1/routes", "{}", {});
    CHECK(text_at(parsed(noted.body), "/note").find("not written to disk") != std::string::npos);
    const auto bad = client().request("PUT", "/v1/routes", R"({"rule":["bad"]})", {});
    CHECK(bad.status == 400);
    CHECK(text_at(parsed(bad.body), "/error/message") == "routes: rule 2: matches nothing");
    CHECK(client().request("PUT", "/v1/routes", "[]", {}).status == 400);
    CHECK(client().request("PUT", "/v1/routes", "", {}).status == 400);
    CHECK(client().request("PUT", "/v1/routes", "{}", {{"Content-Type", "text/plain"}}).status == 415);
}

TEST_CASE_METHOD(RoutingFixture, "a route is tried with a text, a prompt or messages", "[net][http][routes]") {
    const auto json = try_route(R"({"text":"see 法条","task_id":"t","tags":["x","y"],"user":"ann"})");
    CHECK(at(json, "/route") == parsed(R"({"rule":"keyword","modules":["legal"],"name":"words","matched":"法条",
                                           "skipped":["rule 1"]})"));
    CHECK(at(json, "/modules") == parsed(R"([{"name":"legal","weight":0.5}])"));
    CHECK(text_at(json, "/why") == "keyword `法条` of `words`");
    CHECK(tried.model == "auto");
    CHECK(std::get<TextPrompt>(tried.prompt).text == "see 法条");
    CHECK(tried.task_id == "t");
    CHECK(tried.tags == std::vector<std::string>{"x", "y"});
    CHECK(tried.user == "ann");

    try_route(R"({"model":"base-model","prompt":"hi","max_tokens":5,"attune":{"task_id":"t2","tags":["z"]}})");
    CHECK(tried.model == "base-model");
    CHECK(tried.task_id == "t2");
    CHECK(tried.tags == std::vector<std::string>{"z"});
    try_route(R"({"model":"auto","messages":[{"role":"user","content":"hi"}],"stream":true})");
    CHECK(std::holds_alternative<ChatPrompt>(tried.prompt));
    try_route(R"({"task_id":"t3"})");
    CHECK(tried.task_id == "t3");
    try_route(R"({"prompt":[1,2,3]})");
    CHECK(std::holds_alternative<TokenPrompt>(tried.prompt));

    try_route(R"({"model":"nobody","text":"x"})", 404);
    try_route(R"({"text":"x","prompt":"y"})", 400);
    try_route(R"({"prompt":["x","y"]})", 400);
    try_route(R"({"text":5})", 400);
    CHECK(text_at(try_route(R"({"text":"x","tags":"t"})", 400), "/error/param") == "tags");
    CHECK(client().post("/v1/routes/try", "{").status == 400);
}

}  // namespace
}  // namespace attune
