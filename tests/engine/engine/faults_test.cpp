// What goes wrong in one place hurts only those who asked for it.

#include "support/engine_house.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

SamplingParams greedy(int max_tokens) { return EngineHouse::greedy(max_tokens); }

class ThrowingSink final : public TokenSink {
public:
    void push(OutputEvent /*event*/) override { throw std::runtime_error("the client is gone"); }
};

/// Allows one token, then nothing.
class OnceOnly final : public TokenConstraint {
public:
    std::span<const std::uint32_t> mask() override { return words_; }
    void advance(TokenId /*token*/) override { words_.assign(10, 0); }
    void rollback(int /*n*/) override {}
    std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<OnceOnly>(*this); }

private:
    std::vector<std::uint32_t> words_ = std::vector<std::uint32_t>(10, 0xFFFFFFFF);
};

}  // namespace

TEST_CASE("a step that throws fails its own requests, and the engine lives", "[engine][C10]") {
    EngineHouse house({.max_sequences = 2});
    const auto first = house.add(1, "a", greedy(50));
    const auto second = house.add(2, "k", greedy(50));
    const auto waiting = house.add(3, "t", greedy(3));
    house.step();
    house.knobs->throw_at_forward = 0;
    const StepReport report = house.step();
    CHECK(report.fault == "a fault of the test");
    for (const auto& sink : {first, second}) {
        REQUIRE(sink->failure());
        CHECK(sink->failure()->code == Errc::internal);
        CHECK(sink->failure()->message.find("fault of the test") == std::string::npos);
        CHECK(sink->ended_once());
    }
    CHECK(house.engine->stats().free_blocks == house.engine->stats().total_blocks);
    REQUIRE(house.run());
    CHECK(waiting->text() == "uvw");
    REQUIRE(house.ended.size() == 3);
    CHECK(house.ended[0].outcome == "error");
    CHECK(house.all_free());
}

TEST_CASE("running requests outside of the failed batch are recomputed and end the same", "[engine]") {
    EngineHouse house({.max_sequences = 4, .step_tokens = 1});
    const auto older = house.add(1, "a", greedy(3));
    house.step();
    const auto younger = house.add(2, "k", greedy(3));
    house.knobs->throw_at_forward = 0;
    house.step();
    CHECK(older->failure());
    REQUIRE(house.run());
    CHECK(younger->text() == "lmn");
}

TEST_CASE("a row that is not finite ends its request, naming the weights", "[engine]") {
    EngineHouse house;
    house.knobs->not_finite_after = 'd';
    const auto base = house.add(1, "b", greedy(9));
    auto job = house.job(2, "b", greedy(9));
    job->modules = {house.module("bad", 1.0), house.module("off", 0.0)};
    const auto with_module = house.add(std::move(job));
    const auto other = house.add(3, "k", greedy(9));
    REQUIRE(house.run());
    REQUIRE(base->failure());
    CHECK(base->failure()->code == Errc::non_finite);
    CHECK(base->failure()->message.find("the base model") != std::string::npos);
    CHECK(base->text() == "cd");
    REQUIRE(with_module->failure());
    CHECK(with_module->failure()->message.find("module \"bad\"") != std::string::npos);
    CHECK(with_module->failure()->message.find("off") == std::string::npos);
    CHECK(other->text() == "lmnopqrst");
    CHECK(house.all_free());
}

TEST_CASE("one bad choice ends its request with all its choices", "[engine]") {
    EngineHouse house;
    house.knobs->not_finite_after = 'd';
    SamplingParams params = greedy(9);
    params.n = 3;
    const auto sink = house.add(1, "b", params);
    const auto at_prompt = house.add(2, "d", params);
    REQUIRE(house.run());
    CHECK(sink->failure());
    CHECK(sink->ended_once());
    CHECK(at_prompt->failure());
    CHECK(at_prompt->ended_once());
    CHECK(house.all_free());
}

TEST_CASE("a prompt row that is not finite fails a request that scores its prompt", "[engine]") {
    EngineHouse house;
    house.knobs->not_finite_after = 'd';
    SamplingParams params = greedy(2);
    params.prompt_logprobs = 1;
    const auto sink = house.add(1, "abcdef", params);
    REQUIRE(house.run());
    REQUIRE(sink->failure());
    CHECK(sink->failure()->code == Errc::non_finite);
    CHECK(house.all_free());
}

TEST_CASE("a constraint with no way on fails its request alone", "[engine]") {
    EngineHouse house;
    auto job = house.job(1, "a", greedy(5));
    job->constraint = std::make_unique<OnceOnly>();
    const auto sink = house.add(std::move(job));
    const auto other = house.add(2, "a", greedy(5));
    REQUIRE(house.run());
    REQUIRE(sink->failure());
    CHECK(sink->failure()->code == Errc::invalid_argument);
    CHECK(sink->tokens().size() == 1);
    CHECK(other->text() == "bcdef");
}

TEST_CASE("a sink that throws hurts nobody else", "[engine]") {
    EngineHouse house;
    auto job = house.job(1, "a", greedy(4));
    job->sink = std::make_shared<ThrowingSink>();
    house.engine->add(std::move(job));
    const auto other = house.add(2, "a", greedy(4));
    REQUIRE(house.run());
    CHECK(other->text() == "bcde");
    CHECK(house.ended.size() == 2);
}

TEST_CASE("a module that is not resident is refused before the request starts", "[engine]") {
    EngineHouse house;
    JobModule module = house.module("gone");
    house.engine->remove(module.slot);
    auto job = house.job(1, "a", greedy(1));
    job->modules = {module};
    const auto sink = house.add(std::move(job));
    REQUIRE(sink->failure());
    CHECK(sink->failure()->message.find("gone") != std::string::npos);
    CHECK(sink->all<Admitted>().empty());
}
