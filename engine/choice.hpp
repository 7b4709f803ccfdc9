#pragma once

#include "attune/clock.hpp"
#include "attune/token_event.hpp"
#include "engine/sample/output_text.hpp"
#include "engine/sample/token_constraint.hpp"
#include "engine/sample/token_counts.hpp"
#include "engine/schedule/sequence.hpp"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace attune {

/// One answer of a request: its sequence and all that follows from its tokens. append() and rollback() keep them in
/// step, so that a step may add several tokens or take some back.
class Choice {
public:
    Choice(Sequence first, const SamplingParams& params, const Tokenizer* tokenizer,
           std::unique_ptr<TokenConstraint> rules);
    /// Another choice that starts from the same context. No token may have been appended yet.
    std::unique_ptr<Choice> fork(int choice, const SamplingParams& params, const Tokenizer* tokenizer) const;

    /// A new token; `hidden` tokens give no text. Returns the text that became certain.
    OutputText::Piece append(TokenId id, bool hidden = false);
    /// Takes back the last n tokens: keys and values, text not handed out, penalties, constraint.
    void rollback(int n);

    /// The weights of one more token, for the answer's `served` record.
    void record(const std::vector<AppliedModule>& modules);

    int generated_tokens() const { return static_cast<int>(sequence.generated().size()); }

    Sequence sequence;
    std::optional<TokenCounts> counts;  ///< only when a penalty needs them
    std::unique_ptr<TokenConstraint> constraint;
    OutputText text;
    std::vector<ServedEntry> served;
    std::optional<TimePoint> last_token;
    bool open = true;  ///< ChoiceFinished was not sent yet
};

}  // namespace attune
