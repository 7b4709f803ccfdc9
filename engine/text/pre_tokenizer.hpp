#pragma once

#include "attune/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// A part of the text that the model encodes alone.
struct Piece {
    std::string_view text;
    bool at_start = false;  ///< begins where the whole (untouched) text begins
};

/// The pieces of one text, and the texts that pre-tokenizers had to change.
struct Pieces {
    std::vector<Piece> list;
    std::vector<Piece> scratch;
    std::deque<std::string> owned;  // a deque, so that views into earlier texts stay right
};

/// tokenizer.json's `pre_tokenizer`: a list of steps, each splitting (and sometimes rewriting) every piece. Immutable.
class PreTokenizer {
public:
    /// Null for a JSON null. Unknown types are refused by name. A ByteLevel step that comes last leaves pieces as raw
    /// bytes, and `ends_in_bytes()` says so: the model then looks bytes up instead of their alphabet characters.
    static Result<std::unique_ptr<const PreTokenizer>> parse(const nlohmann::json& config);

    class Step {
    public:
        virtual ~Step() = default;
        /// Appends the parts of `piece` to out.scratch.
        virtual void split(const Piece& piece, Pieces& out) const = 0;
        /// Whether a step takes text away, or writes other (never less) text in its place.
        virtual bool drops_text() const { return false; }
        virtual bool rewrites_text() const { return false; }
    };
    PreTokenizer(std::vector<std::unique_ptr<const Step>> steps, bool ends_in_bytes);
    ~PreTokenizer();

    /// Splits the pieces of `pieces.list` in place.
    void apply(Pieces& pieces) const;
    bool ends_in_bytes() const { return ends_in_bytes_; }
    /// No byte of the text is lost; of raw bytes, none becomes another.
    bool keeps_text() const;

private:
    std::vector<std::unique_ptr<const Step>> steps_;
    bool ends_in_bytes_;
};

}  // namespace attune
