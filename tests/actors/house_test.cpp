#include "actors/house.hpp"
#include "actors/messages.hpp"
#include "support/fake_engine.hpp"
#include "support/fake_tokenizer.hpp"

#include <catch2/catch.hpp>

#include <future>
#include <thread>

using namespace attune;

namespace {

/// A sink that keeps a promise: nothing here sleeps.
class PromisedAnswer final : public TokenSink {
public:
    void push(OutputEvent event) override {
        if (auto* token = std::get_if<TokenEvent>(&event)) text_ += token->text;
        if (std::holds_alternative<Finished>(event)) end_.set_value(text_);
        if (auto* failed = std::get_if<Failed>(&event)) end_.set_value("failed: " + failed->error.message);
    }
    std::future<std::string> end() { return end_.get_future(); }

private:
    std::string text_;
    std::promise<std::string> end_;
};

struct RealHouse {
    explicit RealHouse(Settings settings = {}) {
        settings.model.id = "base";
        HouseParts parts;
        parts.engine = std::make_unique<FakeEngine>();
        parts.tokenizer = std::make_shared<FakeTokenizer>();
        auto started = House::start(settings, std::move(parts));
        REQUIRE(started);
        house = std::move(*started);
    }
    std::future<std::string> ask(int max_tokens) {
        auto sink = std::make_shared<PromisedAnswer>();
        auto end = sink->end();
        GenerationRequest request;
        request.id = house->gateway().next_id();
        request.model = "base";
        request.prompt = TokenPrompt{{1, 2}};
        request.sampling.max_tokens = max_tokens;
        house->gateway().submit(std::move(request), std::move(sink));
        return end;
    }
    std::unique_ptr<House> house;
};

}  // namespace

TEST_CASE("a house with real threads answers from several threads at once", "[actors][house]") {
    RealHouse real;
    CHECK(real.house->gateway().ready(nullptr));
    std::vector<std::future<std::string>> answers(40);
    {
        std::vector<std::jthread> clients;
        for (int client = 0; client < 4; ++client)
            clients.emplace_back([&, client] {
                for (int i = 0; i < 10; ++i) answers[static_cast<std::size_t>(client * 10 + i)] = real.ask(3);
            });
    }
    for (auto& answer : answers) CHECK(answer.get() == "...");
    CHECK(real.house->drain(std::chrono::seconds(60)));
}

TEST_CASE("a house that is stopped ends what runs and answers what comes later", "[actors][house]") {
    RealHouse real;
    auto running = real.ask(4000);
    auto more = real.ask(4000);
    real.house->stop();
    running.get();
    more.get();
    CHECK(real.ask(1).get().starts_with("failed: "));
    std::promise<bool> answered;
    real.house->gateway().metrics([&](Result<std::string> text) { answered.set_value(!text); });
    CHECK(answered.get_future().get());
    real.house->stop();  // twice does no harm
}

TEST_CASE("a house whose rules cannot be read does not start, and says why", "[actors][house]") {
    HouseParts parts;
    parts.engine = std::make_unique<FakeEngine>();
    parts.routes.read = []() -> Result<RouteFile> { return make_error(Errc::invalid_argument, "line 3: no such key"); };
    Settings settings;
    settings.model.id = "base";
    const auto house = House::start(settings, std::move(parts));
    REQUIRE_FALSE(house);
    CHECK(house.error().message == "line 3: no such key");
}

TEST_CASE("a draining house is not ready and drains at once when idle", "[actors][house]") {
    RealHouse real;
    CHECK(real.house->drain(std::chrono::seconds(60)));
    std::string why;
    CHECK_FALSE(real.house->gateway().ready(&why));
    CHECK(why == "draining");
    CHECK(real.ask(1).get() == "failed: the server is draining");
}

TEST_CASE("reloading takes new rules and keeps the last good ones when the file is broken", "[actors][house]") {
    class Rule final : public TokenSink {
    public:
        void push(OutputEvent event) override {
            if (auto* admitted = std::get_if<Admitted>(&event)) rule_ = admitted->route.rule;
            if (std::holds_alternative<Finished>(event)) end_.set_value(rule_);
            if (auto* failed = std::get_if<Failed>(&event)) end_.set_value("failed: " + failed->error.message);
        }
        std::future<std::string> end() { return end_.get_future(); }

    private:
        std::string rule_;
        std::promise<std::string> end_;
    };
    RouteRule by_task;  // to the plain base
    by_task.task_ids = {"t"};
    RouteFile with_rule;
    with_rule.rules = {by_task};
    Result<RouteFile> file = with_rule;
    Settings settings;
    settings.model.id = "base";
    HouseParts parts;
    parts.engine = std::make_unique<FakeEngine>();
    parts.routes.read = [&file] { return file; };
    auto started = House::start(settings, std::move(parts));
    REQUIRE(started);
    House& house = **started;
    const auto rule = [&] {
        auto sink = std::make_shared<Rule>();
        auto end = sink->end();
        GenerationRequest request;
        request.id = house.gateway().next_id();
        request.model = "auto";
        request.task_id = "t";
        request.prompt = TokenPrompt{{1, 2}};
        request.sampling.max_tokens = 1;
        house.gateway().submit(std::move(request), std::move(sink));
        return end.get();
    };
    CHECK(rule() == "task_id");
    file = make_error(Errc::invalid_argument, "line 3: no such key");
    house.reload();
    CHECK(rule() == "task_id");
    file = RouteFile{};
    house.reload();
    CHECK(rule() == "default");
}

TEST_CASE("scheduled actors wait for messages and poll for nothing", "[actors]") {
    const HouseConfig config;
    CHECK(caf::get_or(config, "scheduler.policy", caf::atom("stealing")) == caf::atom("sharing"));
}
