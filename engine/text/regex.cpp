#include "engine/text/regex.hpp"

#include "engine/text/pcre.hpp"
#include "engine/text/unicode.hpp"
#include "engine/text/unicode_tables.hpp"

#include <cstdio>
#include <utility>

namespace attune {
namespace {

/// Long runs of alternatives need more than the 32 KiB of JIT stack that the machine stack gives.
PcreScratch& scratch() {
    thread_local PcreScratch mine(
        {.jit_stack_bytes = 64 << 10, .most_jit_stack_bytes = 8 << 20, .steps = 100'000'000, .heap_kib = 64 << 10});
    return mine;
}

void append_range(std::string& out, char32_t first, char32_t last) {
    char text[40];
    std::snprintf(text, sizeof text, "\\x{%X}-\\x{%X}", static_cast<unsigned>(first), static_cast<unsigned>(last));
    out += text;
}

/// What goes into a character class for a property, with the characters that PCRE2's tables do not know yet.
std::string class_of(const std::string& property) {
    std::string out = "\\p{" + property + "}";
    for (const NewerCategory& newer : newer_categories()) {
        if (std::string_view(newer.name).starts_with(property)) append_range(out, newer.first, newer.last);
    }
    return out;
}

/// \w in Oniguruma also holds marks, connectors and the superscript and fraction digits of Latin-1.
std::string word_class() {
    return "\\p{Alphabetic}" + class_of("L") + class_of("M") + class_of("Nd") + class_of("Pc") +
           "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
}

/// A class for an escape whose meaning differs between Oniguruma and PCRE2; empty for any other.
std::string class_of_escape(char escape) {
    switch (escape) {
        case 's':
            return "\\p{White_Space}";  // PCRE2's \s also takes U+180E
        case 'd':
            return class_of("Nd");
        case 'w':
            return word_class();
        default:
            return {};
    }
}

/// Rewrites an Oniguruma pattern so that PCRE2 reads the same from it.
class Translator {
public:
    explicit Translator(std::string_view pattern) : in_(pattern) {}

    std::string translate() {
        while (at_ < in_.size()) {
            if (in_[at_] == '\\' && at_ + 1 < in_.size()) {
                escape();
                continue;
            }
            if (in_[at_] == '[') ++class_depth_;
            if (in_[at_] == ']' && class_depth_ > 0) --class_depth_;
            out_ += in_[at_++];
        }
        return std::move(out_);
    }

private:
    void escape() {
        const char letter = in_[at_ + 1];
        if (letter == 'p' || letter == 'P') {
            const std::size_t close = in_.find('}', at_);
            if (at_ + 2 < in_.size() && in_[at_ + 2] == '{' && close != std::string_view::npos && in_[at_ + 3] != '^') {
                const std::string name(in_.substr(at_ + 3, close - at_ - 3));
                const bool in_class_and_negated = class_depth_ > 0 && letter == 'P';
                put(in_class_and_negated ? "\\P{" + name + "}" : class_of(name), letter == 'P');
                at_ = close + 1;
                return;
            }
        }
        const bool negated = letter == 'S' || letter == 'D' || letter == 'W';
        const std::string members = class_of_escape(negated ? static_cast<char>(letter - 'A' + 'a') : letter);
        if (letter == 'S') {
            out_ += "\\P{White_Space}";
        } else if (members.empty() || (negated && class_depth_ > 0)) {
            out_ += in_.substr(at_, 2);
        } else {
            put(members, negated);
        }
        at_ += 2;
    }
    void put(const std::string& members, bool negated) {
        out_ += class_depth_ > 0 ? members : (negated ? "[^" : "[") + members + "]";
    }

    std::string_view in_;
    std::string out_;
    std::size_t at_ = 0;
    int class_depth_ = 0;
};

std::string from_oniguruma(std::string_view pattern) { return Translator(pattern).translate(); }

}  // namespace

struct Regex::Code : PcreCode {
    bool has_jit = false;
};

Result<Regex> Regex::build(const std::string& pattern, std::string_view shown, bool is_literal) {
    int error = 0;
    std::size_t offset = 0;
    auto code = std::make_shared<Code>();
    const std::uint32_t options =
        is_literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE;
    code->code = pcre2_compile(pcre_bytes(pattern), pattern.size(), options, &error, &offset, nullptr);
    if (code->code == nullptr)
        return make_error(Errc::unsupported, "split pattern " + std::string(shown) + ": " + pcre_message(error));
    code->has_jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
    return Regex(std::move(code));
}

Result<Regex> Regex::compile(std::string_view pattern) { return build(from_oniguruma(pattern), pattern, false); }

Result<Regex> Regex::literal(std::string_view text) { return build(std::string(text), text, true); }

std::size_t Regex::next_character(std::string_view text, std::size_t at) {
    return at < text.size() ? at + code_point_at(text, at).bytes : at + 1;
}

std::optional<Regex::Match> Regex::find(std::string_view text, std::size_t from) const {
    const PcreScratch& mine = scratch();
    const PCRE2_SPTR subject = pcre_bytes(text);
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_->has_jit) {
        found = pcre2_jit_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, mine.data, mine.context);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, mine.data,
                            mine.context);
    }
    if (found < 0) return std::nullopt;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(mine.data);
    return Match{bounds[0], bounds[1]};
}

}  // namespace attune
