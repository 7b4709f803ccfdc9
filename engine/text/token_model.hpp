#pragma once

#include "attune/ids.hpp"

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace attune {

/// How one piece of text becomes ids (tokenizer.json's `model`) and what text an id has. Immutable; any thread.
class TokenModel {
public:
    virtual ~TokenModel() = default;

    /// Appends the ids of `piece`. `raw_bytes`: the piece is bytes to be looked up through the byte-level alphabet;
    /// otherwise it is valid UTF-8 whose characters are vocabulary entries.
    virtual void encode(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const = 0;

    /// The same for a piece that begins where the whole text begins, for models that treat it otherwise.
    virtual void encode_first(std::string_view piece, bool raw_bytes, std::vector<TokenId>& ids) const {
        encode(piece, raw_bytes, ids);
    }

    virtual std::optional<TokenId> id_of(std::string_view token) const = 0;
    /// Empty for an id that is not in the vocabulary.
    virtual std::string_view text_of(TokenId id) const = 0;
    /// One more than the largest id.
    virtual int id_limit() const = 0;
    /// The token of text that has none of its own; -1: such text is lost.
    virtual TokenId unknown_id() const = 0;

    /// The most bytes of text that one id stands for; 0: there is no such bound.
    virtual std::size_t most_bytes_per_id(bool /*raw_bytes*/) const { return 0; }
    /// How many bytes of `text` are sure to be part of some id.
    virtual std::size_t kept_bytes(std::string_view /*text*/, bool /*raw_bytes*/) const { return 0; }
};

}  // namespace attune
