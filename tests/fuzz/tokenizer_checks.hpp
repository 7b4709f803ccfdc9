#pragma once

#include "engine/text/pipeline_tokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "fuzz/fuzz_input.hpp"

#include <string>
#include <vector>

namespace attune::fuzz {

inline std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
    const auto stream = tokenizer.stream(skip_special);
    std::string text;
    for (const TokenId id : ids) {
        const std::string piece = stream->push(id);
        demand(is_valid_utf8(piece));
        text += piece;
    }
    return text + stream->flush();
}

/// What must hold of any tokenizer and any text (made UTF-8 first, as net does).
inline void check_text(const Tokenizer& tokenizer, std::string_view bytes) {
    const TokenId unknown = dynamic_cast<const PipelineTokenizer&>(tokenizer).unknown_id();
    std::string text;
    LossyUtf8 lossy;
    lossy.push(bytes, text);
    lossy.flush(text);
    const std::size_t middle = complete_utf8_bytes(std::string_view(text).substr(0, text.size() / 2));
    const std::vector<TextSpan> literal = {{middle, text.size(), true}};
    for (const bool special : {false, true}) {
        const auto ids = tokenizer.encode(text, special);
        for (const TokenId id : ids) {
            demand(id >= 0 && id < tokenizer.vocab_size());
            tokenizer.token_bytes(id);
        }
        demand(tokenizer.min_tokens(text) <= static_cast<int>(ids.size()));
        (void)tokenizer.encode(text, special, literal);
        for (const bool skip : {false, true}) {
            const std::string whole = tokenizer.decode(ids, skip);
            demand(is_valid_utf8(whole));
            demand(is_valid_utf8(streamed(tokenizer, ids, skip)));
        }
    }
    // A user's text holds no control token, only the one of unknown text.
    const auto as_text = tokenizer.encode(text, false, std::vector<TextSpan>{{0, text.size(), true}});
    for (const TokenId id : as_text) demand(!tokenizer.is_special(id) || id == unknown);
    demand(tokenizer.min_tokens(text) <= static_cast<int>(as_text.size()));
    // Ids that no model should give.
    const std::vector<TokenId> odd = {-1, 0, tokenizer.vocab_size(), 1 << 30, 1};
    (void)tokenizer.decode(odd, true);
    (void)streamed(tokenizer, odd, false);
}

}  // namespace attune::fuzz
