#include "engine/choice.hpp"

#include "attune/assert.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

bool same_weights(const std::vector<AppliedModule>& a, const std::vector<AppliedModule>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const AppliedModule& x, const AppliedModule& y) {
        return x.id == y.id && x.weight == y.weight;
    });
}

}  // namespace

Choice::Choice(Sequence first, const SamplingParams& params, const Tokenizer* tokenizer,
               std::unique_ptr<TokenConstraint> rules)
    : sequence(std::move(first)), constraint(std::move(rules)), text(tokenizer, params) {
    if (params.repetition_penalty != 1.0 || params.presence_penalty != 0.0 || params.frequency_penalty != 0.0)
        counts.emplace(sequence.tokens());
}

std::unique_ptr<Choice> Choice::fork(int choice, const SamplingParams& params, const Tokenizer* tokenizer) const {
    ATTUNE_ASSERT(generated_tokens() == 0);
    return std::make_unique<Choice>(sequence.fork(choice), params, tokenizer,
                                    constraint ? constraint->clone() : nullptr);
}

OutputText::Piece Choice::append(TokenId id, bool hidden) {
    sequence.append(id);
    if (counts) counts->add(id);
    if (constraint) constraint->advance(id);
    if (!hidden) return text.push(id);
    text.push_hidden();
    return {};
}

void Choice::rollback(int n) {
    const auto generated = sequence.generated();
    if (counts) {
        for (const TokenId id : generated.last(static_cast<std::size_t>(n))) counts->remove(id);
    }
    if (constraint) constraint->rollback(n);
    sequence.rollback(n);
    text.rollback(sequence.generated());
}

void Choice::record(const std::vector<AppliedModule>& modules) {
    if (served.empty() || !same_weights(served.back().modules, modules))
        served.push_back({sequence.choice(), modules, 0});
    ++served.back().tokens;
}

}  // namespace attune
