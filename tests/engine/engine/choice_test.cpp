#include "engine/choice.hpp"

#include "support/fake_tokenizer.hpp"
#include "support/sequences.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

/// Counts what it is told.
class CountingConstraint final : public TokenConstraint {
public:
    explicit CountingConstraint(std::shared_ptr<std::vector<TokenId>> told) : told_(std::move(told)) {}
    std::span<const std::uint32_t> mask() override { return {}; }
    void advance(TokenId token) override { told_->push_back(token); }
    void rollback(int n) override { told_->resize(told_->size() - static_cast<std::size_t>(n)); }
    std::unique_ptr<TokenConstraint> clone() const override {
        return std::make_unique<CountingConstraint>(std::make_shared<std::vector<TokenId>>(*told_));
    }

private:
    std::shared_ptr<std::vector<TokenId>> told_;
};

int outputs_of(const Choice& choice, TokenId id) {
    for (const TokenCounts::Entry& entry : choice.counts->entries()) {
        if (entry.id == id) return entry.outputs;
    }
    return 0;
}

SamplingParams penalised() {
    SamplingParams params;
    params.presence_penalty = 1;
    return params;
}

}  // namespace

TEST_CASE("a choice takes tokens back everywhere at once", "[engine]") {
    BlockPool pool(4);
    const FakeTokenizer tokenizer({{300, "EN"}});
    auto told = std::make_shared<std::vector<TokenId>>();
    SamplingParams params = penalised();
    params.stop = {"END"};
    Choice choice(std::move(*make_sequence(pool, {.prompt = 3})), params, &tokenizer,
                  std::make_unique<CountingConstraint>(told));
    CHECK(choice.append('a').text == "a");
    CHECK(choice.append(300).text.empty());
    CHECK(choice.append(300).text == "EN");
    CHECK(outputs_of(choice, 300) == 2);
    CHECK(*told == std::vector<TokenId>{'a', 300, 300});

    choice.rollback(2);
    CHECK(choice.generated_tokens() == 1);
    CHECK(choice.sequence.length() == 4);
    CHECK(outputs_of(choice, 300) == 0);
    CHECK(outputs_of(choice, 'a') == 1);
    CHECK(*told == std::vector<TokenId>{'a'});
}

TEST_CASE("after a rollback a choice goes on as if the tokens had never been", "[engine]") {
    BlockPool pool(4);
    const FakeTokenizer tokenizer;
    SamplingParams params;
    params.stop = {"END"};
    Choice straight(std::move(*make_sequence(pool, {.prompt = 3})), params, &tokenizer, nullptr);
    Choice winding(std::move(*make_sequence(pool, {.prompt = 3})), params, &tokenizer, nullptr);
    std::string straight_text;
    std::string winding_text;
    for (const TokenId id : {'x', 'E', 'N'}) {
        straight_text += straight.append(id).text;
        winding_text += winding.append(id).text;
    }
    winding.append('Q');
    winding.rollback(1);
    const auto end = straight.append('D');
    const auto winding_end = winding.append('D');
    CHECK(end.stop == "END");
    CHECK(straight_text + end.text + straight.text.finish() == "x");
    // "EN" was handed out with 'Q' before it was taken back: it stays, and "D" completes nothing that is still held.
    CHECK(winding.sequence.length() == straight.sequence.length());
    CHECK(winding_text == "x");
    CHECK_FALSE(winding_end.stop);
}

TEST_CASE("choices without penalties keep no counts", "[engine]") {
    BlockPool pool(4);
    const Choice choice(std::move(*make_sequence(pool, {.prompt = 3})), {}, nullptr, nullptr);
    CHECK_FALSE(choice.counts);
}

TEST_CASE("a forked choice has its own counts and constraint", "[engine]") {
    BlockPool pool(4);
    auto told = std::make_shared<std::vector<TokenId>>();
    Choice choice(std::move(*make_sequence(pool, {.prompt = 3})), penalised(), nullptr,
                  std::make_unique<CountingConstraint>(told));
    const auto fork = choice.fork(2, penalised(), nullptr);
    fork->append(7);
    CHECK(fork->sequence.choice() == 2);
    CHECK(outputs_of(*fork, 7) == 1);
    CHECK(outputs_of(choice, 7) == 0);
    CHECK(told->empty());
}

TEST_CASE("the record of weights grows token by token and by change of weights", "[engine]") {
    BlockPool pool(4);
    Choice choice(std::move(*make_sequence(pool, {.prompt = 3})), {}, nullptr, nullptr);
    const AppliedModule legal{{"legal", "g1"}, 1.0, false};
    const AppliedModule lighter{{"legal", "g1"}, 0.5, false};
    choice.record({});
    choice.record({});
    choice.record({legal});
    choice.record({lighter});
    choice.record({lighter});
    REQUIRE(choice.served.size() == 3);
    CHECK(choice.served[0].tokens == 2);
    CHECK(choice.served[1].tokens == 1);
    CHECK(choice.served[2].tokens == 2);
    CHECK(choice.served[2].modules[0].weight == 0.5);
}
