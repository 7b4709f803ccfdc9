#include "engine/route/route_pattern.hpp"

#include "attune/utf8.hpp"
#include "engine/text/pcre.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace attune {
namespace {

PcreScratch& scratch() {
    thread_local PcreScratch mine({.jit_stack_bytes = 32 << 10,
                                   .most_jit_stack_bytes = 512 << 10,
                                   .steps = RoutePattern::kSteps,
                                   .depth = RoutePattern::kSteps,
                                   .heap_kib = 1 << 10});
    return mine;
}

Error refuse(std::string why) { return make_error(Errc::invalid_argument, std::move(why)); }

}  // namespace

struct RoutePattern::Code : PcreCode {};

Result<RoutePattern> RoutePattern::compile(std::string_view pattern) {
    if (pattern.size() > kBytes) return refuse("is longer than " + std::to_string(kBytes) + " bytes");
    if (!is_valid_utf8(pattern)) return refuse("is not UTF-8");
    constexpr std::uint32_t kOptions =
        PCRE2_UTF | PCRE2_UCP | PCRE2_CASELESS | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C;
    int error = 0;
    std::size_t offset = 0;
    auto code = std::make_shared<Code>();
    code->code = pcre2_compile(pcre_bytes(pattern), pattern.size(), kOptions, &error, &offset, nullptr);
    if (code->code == nullptr)
        return refuse("is no regular expression: " + pcre_message(error) + " at byte " + std::to_string(offset));
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
    const PcreScratch& mine = scratch();
    const int found =
        pcre2_match(code_->code, pcre_bytes(text), text.size(), 0, PCRE2_NO_UTF_CHECK, mine.data, mine.context);
    if (found == PCRE2_ERROR_NOMATCH) return {};
    if (found < 0) return {Outcome::over_limit, 0, 0};
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(mine.data);
    // \K in a look-around may put the end before the begin.
    return {Outcome::found, std::min(bounds[0], bounds[1]), std::max(bounds[0], bounds[1])};
}

}  // namespace attune
