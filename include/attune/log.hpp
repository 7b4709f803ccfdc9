#pragma once

#include <string_view>

namespace attune {

enum class LogLevel { trace, debug, info, warn, error, off };

/// Writes one line to stderr; any thread. Implemented with spdlog in config/log.cpp, the only file that includes it:
/// torch carries its own fmt, and a file that includes both does not compile.
void log(LogLevel level, std::string_view text);

/// Set once at start. `format` is "text" or "json".
void set_log(LogLevel level, std::string_view format);

}  // namespace attune
