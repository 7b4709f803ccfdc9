#include "engine/route/route_pattern.hpp"

#include "attune/utf8.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>
#include <utility>

namespace attune {
namespace {

/// Of one thread: match data, and the bounds every search has.
struct Scratch {
    Scratch() {
        data = pcre2_match_data_create(1, nullptr);
        context = pcre2_match_context_create(nullptr);
        stack = pcre2_jit_stack_create(32 << 10, 512 << 10, nullptr);
        pcre2_jit_stack_assign(context, nullptr, stack);
        pcre2_set_match_limit(context, RoutePattern::kSteps);
        pcre2_set_depth_limit(context, RoutePattern::kSteps);
        pcre2_set_heap_limit(context, 1 << 10);  // KiB
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

PCRE2_SPTR bytes_of(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
}

Error refuse(std::string why) { return make_error(Errc::invalid_argument, std::move(why)); }

}  // namespace

struct RoutePattern::Code {
    pcre2_code* code = nullptr;

    Code() = default;
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;
    ~Code() { pcre2_code_free(code); }
};

Result<RoutePattern> RoutePattern::compile(std::string_view pattern) {
    if (pattern.size() > kBytes) return refuse("is longer than " + std::to_string(kBytes) + " bytes");
    if (!is_valid_utf8(pattern)) return refuse("is not UTF-8");
    constexpr std::uint32_t kOptions =
        PCRE2_UTF | PCRE2_UCP | PCRE2_CASELESS | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C;
    int error = 0;
    std::size_t offset = 0;
    auto code = std::make_shared<Code>();
    code->code = pcre2_compile(bytes_of(pattern), pattern.size(), kOptions, &error, &offset, nullptr);
    if (code->code == nullptr) {
        char message[256] = {};
        pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
        return refuse("is no regular expression: " + std::string(message) + " at byte " + std::to_string(offset));
    }
    std::size_t size = 0;
    pcre2_pattern_info(code->code, PCRE2_INFO_SIZE, &size);
    if (size > kCompiledBytes) return refuse("is too large: its repeats make " + std::to_string(size) + " bytes of it");
    std::uint32_t matches_empty = 0;
    pcre2_pattern_info(code->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) return refuse("matches an empty text, so it would match everything");
    pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // where that fails, the interpreter has the same bounds
    return RoutePattern(std::move(code));
}

RoutePattern::Match RoutePattern::find(std::string_view text) const {
    Scratch& mine = scratch();
    const int found =
        pcre2_match(code_->code, bytes_of(text), text.size(), 0, PCRE2_NO_UTF_CHECK, mine.data, mine.context);
    if (found == PCRE2_ERROR_NOMATCH) return {};
    if (found < 0) return {Outcome::over_limit, 0, 0};
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(mine.data);
    // \K in a look-around may put the end before the begin.
    return {Outcome::found, std::min(bounds[0], bounds[1]), std::max(bounds[0], bounds[1])};
}

}  // namespace attune
