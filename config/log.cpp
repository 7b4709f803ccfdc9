#include "attune/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace attune {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
        case LogLevel::trace:
            return spdlog::level::trace;
        case LogLevel::debug:
            return spdlog::level::debug;
        case LogLevel::info:
            return spdlog::level::info;
        case LogLevel::warn:
            return spdlog::level::warn;
        case LogLevel::error:
            return spdlog::level::err;
        case LogLevel::off:
            return spdlog::level::off;
    }
    return spdlog::level::info;
}

const char* level_name(LogLevel level) {
    switch (level) {
        case LogLevel::trace:
            return "trace";
        case LogLevel::debug:
            return "debug";
        case LogLevel::info:
            return "info";
        case LogLevel::warn:
            return "warn";
        case LogLevel::error:
            return "error";
        case LogLevel::off:
            return "off";
    }
    return "info";
}

/// One record is one line: names and messages come from clients and files, and must not forge a second record.
std::string one_line(std::string_view text) {
    std::string line;
    line.reserve(text.size());
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7F) {
            line += c;
        } else if (c == '\n') {
            line += "\\n";
        } else {
            static constexpr char kHex[] = "0123456789abcdef";
            line += "\\x";
            line += kHex[byte >> 4];
            line += kHex[byte & 15];
        }
    }
    return line;
}

/// The record as JSON without its time, which spdlog's pattern puts in front.
std::string json_rest(LogLevel level, std::string_view text) {
    const auto quote = [](std::string_view value) {
        return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    return "\"level\":" + quote(level_name(level)) + ",\"text\":" + quote(text) + "}";
}

std::atomic<bool> as_json{false};

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %^%-5l%$ %v";
constexpr const char* kJsonPattern = "{\"time\":\"%Y-%m-%dT%H:%M:%S.%eZ\",%v";

spdlog::logger& logger() {
    // Never destroyed: threads that outlive main may still log.
    static spdlog::logger* const instance = [] {
        auto made = std::make_unique<spdlog::logger>("attune", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
        made->set_pattern(kTextPattern, spdlog::pattern_time_type::utc);
        made->flush_on(spdlog::level::trace);
        return made.release();
    }();
    return *instance;
}

}  // namespace

void log(LogLevel level, std::string_view text) {
    if (level == LogLevel::off || !logger().should_log(spdlog_level(level))) return;
    const std::string line = as_json.load(std::memory_order_relaxed) ? json_rest(level, text) : one_line(text);
    logger().log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

void set_log(LogLevel level, std::string_view format) {
    const bool json = format == "json";
    as_json.store(json, std::memory_order_relaxed);
    logger().set_pattern(json ? kJsonPattern : kTextPattern, spdlog::pattern_time_type::utc);
    logger().set_level(spdlog_level(level));
}

}  // namespace attune
