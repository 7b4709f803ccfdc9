#include "engine/text/regex.hpp"

#include "engine/text/unicode.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

namespace attune {
namespace {

/// Scratch of one thread: match data for a pattern without captures that matter, and the JIT's stack. Long runs of
/// alternatives need more than the 32 KiB the machine stack gives.
struct Scratch {
    Scratch() {
        data = pcre2_match_data_create(1, nullptr);
        context = pcre2_match_context_create(nullptr);
        stack = pcre2_jit_stack_create(64 << 10, 8 << 20, nullptr);
        pcre2_jit_stack_assign(context, nullptr, stack);
        pcre2_set_match_limit(context, 100'000'000);
        pcre2_set_heap_limit(context, 64 << 10);  // KiB
    }
    ~Scratch() {
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
        pcre2_jit_stack_free(stack);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    pcre2_match_data* data = nullptr;
    pcre2_match_context* context = nullptr;
    pcre2_jit_stack* stack = nullptr;
};

Scratch& scratch() {
    thread_local Scratch mine;
    return mine;
}

/// Oniguruma's \s is the property White_Space (PCRE2's also takes U+180E), and its \w holds marks and connectors.
std::string from_oniguruma(std::string_view pattern) {
    std::string out;
    int class_depth = 0;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c == '\\' && i + 1 < pattern.size()) {
            const char escape = pattern[++i];
            constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
            if (escape == 's') {
                out += "\\p{White_Space}";
            } else if (escape == 'S') {
                out += "\\P{White_Space}";
            } else if (escape == 'w') {
                out += class_depth > 0 ? std::string(kWord) : "[" + std::string(kWord) + "]";
            } else if (escape == 'W' && class_depth == 0) {
                out += "[^" + std::string(kWord) + "]";
            } else {
                out += c;
                out += escape;
            }
            continue;
        }
        if (c == '[') ++class_depth;
        if (c == ']' && class_depth > 0) --class_depth;
        out += c;
    }
    return out;
}

}  // namespace

struct Regex::Code {
    pcre2_code* code = nullptr;
    bool has_jit = false;

    Code() = default;
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;
    ~Code() { pcre2_code_free(code); }
};

Result<Regex> Regex::build(const std::string& pattern, std::string_view shown, bool is_literal) {
    int error = 0;
    std::size_t offset = 0;
    auto code = std::make_shared<Code>();
    const std::uint32_t options =
        is_literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE;
    code->code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, nullptr);
    if (code->code == nullptr) {
        char message[256] = {};
        pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
        return make_error(Errc::unsupported, "split pattern " + std::string(shown) + ": " + message);
    }
    code->has_jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
    return Regex(std::move(code));
}

Result<Regex> Regex::compile(std::string_view pattern) { return build(from_oniguruma(pattern), pattern, false); }

Result<Regex> Regex::literal(std::string_view text) { return build(std::string(text), text, true); }

std::size_t Regex::next_character(std::string_view text, std::size_t at) {
    return at < text.size() ? at + code_point_at(text, at).bytes : at + 1;
}

std::optional<Regex::Match> Regex::find(std::string_view text, std::size_t from) const {
    Scratch& mine = scratch();
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
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
