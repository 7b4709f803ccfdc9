#pragma once

// What every user of PCRE2 in the house needs. For .cpp files: it brings PCRE2's macros along.

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attune {

/// What one search may cost.
struct PcreBounds {
    std::size_t jit_stack_bytes = 0;
    std::size_t most_jit_stack_bytes = 0;
    std::uint32_t steps = 0;  ///< of backtracking
    std::optional<std::uint32_t> depth = std::nullopt;
    std::uint32_t heap_kib = 0;
};

/// Scratch of one thread: match data for a pattern without captures that matter, the bounds of a search, and the JIT's
/// stack.
struct PcreScratch {
    explicit PcreScratch(const PcreBounds& bounds)
        : data(pcre2_match_data_create(1, nullptr)),
          context(pcre2_match_context_create(nullptr)),
          stack(pcre2_jit_stack_create(bounds.jit_stack_bytes, bounds.most_jit_stack_bytes, nullptr)) {
        pcre2_jit_stack_assign(context, nullptr, stack);
        pcre2_set_match_limit(context, bounds.steps);
        if (bounds.depth) pcre2_set_depth_limit(context, *bounds.depth);
        pcre2_set_heap_limit(context, bounds.heap_kib);
    }
    ~PcreScratch() {
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
        pcre2_jit_stack_free(stack);
    }
    PcreScratch(const PcreScratch&) = delete;
    PcreScratch& operator=(const PcreScratch&) = delete;

    pcre2_match_data* data;
    pcre2_match_context* context;
    pcre2_jit_stack* stack;
};

/// A compiled pattern.
struct PcreCode {
    PcreCode() = default;
    ~PcreCode() { pcre2_code_free(code); }
    PcreCode(const PcreCode&) = delete;
    PcreCode& operator=(const PcreCode&) = delete;

    pcre2_code* code = nullptr;
};

/// PCRE2 takes no null pointer, which an empty text may have.
inline PCRE2_SPTR pcre_bytes(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
}

inline std::string pcre_message(int error) {
    char message[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    return message;
}

}  // namespace attune
