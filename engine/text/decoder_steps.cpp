#include "engine/text/decoder_steps.hpp"

#include "engine/text/byte_alphabet.hpp"
#include "engine/text/unicode.hpp"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace attune {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

template <class State>
class CopyableState : public DecoderStepState {
public:
    std::unique_ptr<DecoderStepState> clone() const override {
        return std::make_unique<State>(static_cast<const State&>(*this));
    }
};

class ByteLevelStep final : public DecoderStep {
public:
    std::unique_ptr<DecoderStepState> start(bool) const override { return std::make_unique<State>(); }
    std::string bytes_of(std::string text) const override { return to_bytes(text); }

private:
    static std::string to_bytes(std::string_view text) {
        std::string bytes;
        return append_bytes_of_alphabet(text, bytes) ? bytes : std::string(text);
    }
    struct State final : CopyableState<State> {
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            DecoderPart decoded{{}, !begun_};
            begun_ = true;
            utf8_.push(to_bytes(part.text), decoded.text);
            out.push_back(std::move(decoded));
        }
        void finish(std::vector<DecoderPart>& out) override {
            DecoderPart decoded{{}, !begun_};
            utf8_.flush(decoded.text);
            out.push_back(std::move(decoded));
        }
        LossyUtf8 utf8_;
        bool begun_ = false;
    };
};

/// <0xNN> tokens become bytes; a run of them that is no UTF-8 becomes one U+FFFD for each byte of the run.
class ByteFallbackStep final : public DecoderStep {
public:
    std::unique_ptr<DecoderStepState> start(bool early) const override { return std::make_unique<State>(early); }
    std::string bytes_of(std::string text) const override {
        const auto byte = byte_of(text);
        return byte ? std::string(1, static_cast<char>(*byte)) : text;
    }

private:
    static std::optional<unsigned char> byte_of(std::string_view token) {
        if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
        int value = 0;
        for (const char c : token.substr(3, 2)) {
            const int digit = c >= '0' && c <= '9'   ? c - '0'
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                     : -1;
            if (digit < 0) return std::nullopt;
            value = value * 16 + digit;
        }
        return static_cast<unsigned char>(value);
    }
    struct State final : CopyableState<State> {
        explicit State(bool early) : early_(early) {}
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            const auto byte = byte_of(part.text);
            if (!byte) {
                end_run(out);
                out.push_back(std::move(part));
                return;
            }
            run_.push_back(static_cast<char>(*byte));
            ++run_bytes_;
            if (!early_) return;
            // Complete characters leave at once; the run may still turn out ill-formed, which a stream cannot unsay.
            if (!is_valid_utf8(run_)) return;
            ++sent_;
            sent_others_ = sent_others_ || run_ != kReplacement;
            out.push_back({std::exchange(run_, {}), true});
        }
        void finish(std::vector<DecoderPart>& out) override { end_run(out); }
        void end_run(std::vector<DecoderPart>& out) {
            if (run_bytes_ == 0) return;
            if (is_valid_utf8(run_)) {
                if (!run_.empty()) out.push_back({run_, true});
            } else {
                // One for each byte of the run; those that a stream has already sent count when they look the same.
                const std::size_t owed = sent_others_ ? run_.size() : run_bytes_ - sent_;
                for (std::size_t i = 0; i < owed; ++i) out.push_back({std::string(kReplacement), true});
            }
            *this = State(early_);
        }
        bool early_;
        std::string run_;  // what has not been sent of it
        std::size_t run_bytes_ = 0;
        std::size_t sent_ = 0;  // characters
        bool sent_others_ = false;
    };
};

class FuseStep final : public DecoderStep {
public:
    std::unique_ptr<DecoderStepState> start(bool) const override { return std::make_unique<State>(); }

private:
    struct State final : CopyableState<State> {
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            out.push_back({std::move(part.text), !begun_});
            begun_ = true;
        }
        bool begun_ = false;
    };
};

/// Removes up to `start` characters from each token's begin and up to `stop` from its end.
class StripStep final : public DecoderStep {
public:
    StripStep(char32_t content, std::size_t start, std::size_t stop) : content_(content), start_(start), stop_(stop) {}
    std::unique_ptr<DecoderStepState> start(bool) const override { return std::make_unique<State>(this); }

private:
    struct State final : CopyableState<State> {
        explicit State(const StripStep* step) : step_(step) {}
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            if (part.begins) left_ = step_->start_;
            std::size_t begin = 0;
            while (left_ > 0 && begin < part.text.size()) {
                const CodePoint point = code_point_at(part.text, begin);
                if (point.value != step_->content_) {
                    left_ = 0;
                    break;
                }
                begin += point.bytes;
                --left_;
            }
            std::size_t end = part.text.size();
            for (std::size_t i = 0; i < step_->stop_ && end > begin; ++i) {
                const CodePoint point = code_point_before(part.text, end);
                if (point.value != step_->content_) break;
                end -= point.bytes;
            }
            part.text = part.text.substr(begin, end - begin);
            out.push_back(std::move(part));
        }
        const StripStep* step_;
        std::size_t left_ = 0;
    };
    char32_t content_;
    std::size_t start_;
    std::size_t stop_;
};

class ReplaceStep final : public DecoderStep {
public:
    ReplaceStep(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
    std::unique_ptr<DecoderStepState> start(bool) const override { return std::make_unique<State>(this); }
    std::string bytes_of(std::string text) const override { return replaced(text); }

private:
    std::string replaced(std::string_view text) const {
        std::string out;
        std::size_t done = 0;
        pattern_.for_each(text, [&](Regex::Match match) {
            out.append(text.substr(done, match.begin - done));
            out.append(content_);
            done = match.end;
        });
        out.append(text.substr(done));
        return out;
    }
    struct State final : CopyableState<State> {
        explicit State(const ReplaceStep* step) : step_(step) {}
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            out.push_back({step_->replaced(part.text), part.begins});
        }
        const ReplaceStep* step_;
    };
    Regex pattern_;
    std::string content_;
};

/// The first token loses its marks, later ones get spaces for them.
class MetaspaceStep final : public DecoderStep {
public:
    MetaspaceStep(std::string replacement, bool drops_first)
        : replacement_(std::move(replacement)), drops_first_(drops_first) {}
    std::unique_ptr<DecoderStepState> start(bool) const override { return std::make_unique<State>(this); }
    std::string bytes_of(std::string text) const override { return replaced(text, " "); }

private:
    std::string replaced(std::string_view text, std::string_view with) const {
        std::string out;
        for (std::size_t at = 0; at < text.size();) {
            if (text.substr(at).starts_with(replacement_)) {
                out += with;
                at += replacement_.size();
            } else {
                out += text[at++];
            }
        }
        return out;
    }
    struct State final : CopyableState<State> {
        explicit State(const MetaspaceStep* step) : step_(step) {}
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            out.push_back({step_->replaced(part.text, first_ && step_->drops_first_ ? "" : " "), part.begins});
            first_ = false;
        }
        const MetaspaceStep* step_;
        bool first_ = true;
    };
    std::string replacement_;
    bool drops_first_;
};

/// `suffix` ends a word: a space, except after the last token. So each token's text is sure when the next one comes.
class WordSuffixStep final : public DecoderStep {
public:
    explicit WordSuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}
    std::unique_ptr<DecoderStepState> start(bool) const override { return std::make_unique<State>(this); }
    std::string bytes_of(std::string text) const override { return replaced(text, " "); }

private:
    std::string replaced(std::string_view text, std::string_view with) const {
        if (suffix_.empty()) return std::string(text);
        std::string out;
        for (std::size_t found = text.find(suffix_); found != std::string_view::npos; found = text.find(suffix_)) {
            out.append(text.substr(0, found));
            out.append(with);
            text.remove_prefix(found + suffix_.size());
        }
        return out.append(text);
    }
    struct State final : CopyableState<State> {
        explicit State(const WordSuffixStep* step) : step_(step) {}
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            if (held_) out.push_back({step_->replaced(held_->text, " "), held_->begins});
            held_ = std::move(part);
        }
        void finish(std::vector<DecoderPart>& out) override {
            if (held_) out.push_back({step_->replaced(held_->text, ""), held_->begins});
            held_.reset();
        }
        const WordSuffixStep* step_;
        std::optional<DecoderPart> held_;
    };
    std::string suffix_;
};

/// A token that does not begin with `prefix` begins a word.
class WordPieceStep final : public DecoderStep {
public:
    WordPieceStep(std::string prefix, bool cleans_up) : prefix_(std::move(prefix)), cleans_up_(cleans_up) {}
    std::unique_ptr<DecoderStepState> start(bool) const override { return std::make_unique<State>(this); }
    std::string bytes_of(std::string text) const override { return decoded(std::move(text), false); }

private:
    std::string decoded(std::string token, bool is_first) const {
        if (!is_first && token.starts_with(prefix_)) {
            token.erase(0, prefix_.size());
        } else if (!is_first) {
            token.insert(0, " ");
        }
        if (!cleans_up_) return token;
        // In this order, as the reference does.
        constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kTidy = {{{" .", "."},
                                                                                          {" ?", "?"},
                                                                                          {" !", "!"},
                                                                                          {" ,", ","},
                                                                                          {" ' ", "'"},
                                                                                          {" n't", "n't"},
                                                                                          {" 'm", "'m"},
                                                                                          {" do not", " don't"},
                                                                                          {" 's", "'s"},
                                                                                          {" 've", "'ve"},
                                                                                          {" 're", "'re"}}};
        for (const auto& [from, to] : kTidy) {
            for (std::size_t at = token.find(from); at != std::string::npos; at = token.find(from, at + to.size())) {
                token.replace(at, from.size(), to);
            }
        }
        return token;
    }
    struct State final : CopyableState<State> {
        explicit State(const WordPieceStep* step) : step_(step) {}
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            out.push_back({step_->decoded(std::move(part.text), first_), part.begins});
            first_ = false;
        }
        const WordPieceStep* step_;
        bool first_ = true;
    };
    std::string prefix_;
    bool cleans_up_;
};

/// No decoder at all: tokens joined with spaces.
class JoinWithSpaces final : public DecoderStep {
public:
    std::unique_ptr<DecoderStepState> start(bool) const override { return std::make_unique<State>(); }

private:
    struct State final : CopyableState<State> {
        void push(DecoderPart part, std::vector<DecoderPart>& out) override {
            if (!first_) part.text.insert(0, " ");
            first_ = false;
            out.push_back(std::move(part));
        }
        bool first_ = true;
    };
};

}  // namespace

DecoderStepPtr byte_level_step() { return std::make_unique<ByteLevelStep>(); }
DecoderStepPtr byte_fallback_step() { return std::make_unique<ByteFallbackStep>(); }
DecoderStepPtr fuse_step() { return std::make_unique<FuseStep>(); }
DecoderStepPtr strip_step(char32_t character, std::size_t start, std::size_t stop) {
    return std::make_unique<StripStep>(character, start, stop);
}
DecoderStepPtr replace_step(Regex pattern, std::string content) {
    return std::make_unique<ReplaceStep>(std::move(pattern), std::move(content));
}
DecoderStepPtr metaspace_step(std::string replacement, bool drops_first) {
    return std::make_unique<MetaspaceStep>(std::move(replacement), drops_first);
}
DecoderStepPtr word_suffix_step(std::string suffix) { return std::make_unique<WordSuffixStep>(std::move(suffix)); }
DecoderStepPtr word_piece_step(std::string prefix, bool cleans_up) {
    return std::make_unique<WordPieceStep>(std::move(prefix), cleans_up);
}
DecoderStepPtr join_step() { return std::make_unique<JoinWithSpaces>(); }

}  // namespace attune
