#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>

/// What libFuzzer calls once per input; must return 0. Each *_fuzz.cpp defines it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace attune::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
    return std::as_bytes(std::span(data, size));
}

/// The input up to its first NUL, and what follows; nothing follows when there is none.
inline std::pair<std::string_view, std::string_view> split_at_nul(std::string_view input) {
    const std::size_t at = input.find('\0');
    if (at == std::string_view::npos) return {input, {}};
    return {input.substr(0, at), input.substr(at + 1)};
}

/// A broken promise is a crash, which every runner notices; the line says which.
inline void demand(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (holds) return;
    std::fprintf(stderr, "%s:%d: a promise is broken\n", file, line);
    std::abort();
}

}  // namespace attune::fuzz
