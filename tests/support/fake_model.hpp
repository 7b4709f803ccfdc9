#pragma once

#include "engine/engine.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace attune {

/// What a test may set on a fake model, and see of it.
struct FakeModelKnobs {
    float peak = 20;                          ///< how much the next token stands out; small: draws vary
    std::optional<TokenId> not_finite_after;  ///< rows of this token are not a number
    std::optional<int> throw_at_forward;      ///< the n-th forward from now throws (0 = the next)
    std::vector<int> rows;                    ///< of each forward
    int most_logit_rows = 0;                  ///< of one call
};

/// An engine over a model one can compute in one's head: after token t comes t + 1, and each module on the row adds its
/// weight to the step. With FakeTokenizer the prompt "a" goes on "bcd...". Vocabulary 320, context 512.
/// Only the implementation sees torch.
std::unique_ptr<Engine> make_fake_engine(std::shared_ptr<FakeModelKnobs> knobs, const EngineOptions& options,
                                         int kv_blocks, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace attune
