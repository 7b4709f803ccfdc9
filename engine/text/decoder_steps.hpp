#pragma once

#include "engine/text/regex.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace attune {

/// A token on its way through the steps. After Fuse all tokens are one: parts of it arrive with `begins` only on the
/// first.
struct DecoderPart {
    std::string text;
    bool begins = true;
};

/// One step's place in a stream: takes parts, gives parts.
class DecoderStepState {
public:
    virtual ~DecoderStepState() = default;
    virtual void push(DecoderPart part, std::vector<DecoderPart>& out) = 0;
    virtual void finish(std::vector<DecoderPart>&) {}
    virtual std::unique_ptr<DecoderStepState> clone() const = 0;
};

class DecoderStep {
public:
    virtual ~DecoderStep() = default;
    virtual std::unique_ptr<DecoderStepState> start(bool early) const = 0;
    virtual std::string bytes_of(std::string text) const { return text; }
};

using DecoderStepPtr = std::unique_ptr<const DecoderStep>;

// tokenizer.json's kinds, under their names there.
DecoderStepPtr byte_level_step();
DecoderStepPtr byte_fallback_step();
DecoderStepPtr fuse_step();
/// Takes up to `start` and `stop` of the character from both ends of each part.
DecoderStepPtr strip_step(char32_t character, std::size_t start, std::size_t stop);
DecoderStepPtr replace_step(Regex pattern, std::string content);
/// `drops_first`: the encoder puts one before the text, which goes again.
DecoderStepPtr metaspace_step(std::string replacement, bool drops_first);
/// BPEDecoder: a suffix ends a word.
DecoderStepPtr word_suffix_step(std::string suffix);
DecoderStepPtr word_piece_step(std::string prefix, bool cleans_up);
/// Where there is no decoder: a space between tokens.
DecoderStepPtr join_step();

}  // namespace attune
