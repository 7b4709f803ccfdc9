#pragma once

#include "attune/log.hpp"
#include "attune/request.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace attune {

/// Every setting with its default. config/ reads it from attune.toml and the command line; config/attune.toml comments
/// each one. Sizes are bytes, 0 = chosen at start where noted.
struct ServerSettings {
    std::string host = "127.0.0.1";
    std::uint16_t port = 8000;  ///< 0 = any free port
    int threads = 1;            ///< IO threads
    int max_connections = 1024;
    std::uint64_t max_body_bytes = 16ull << 20;
    std::uint32_t max_header_bytes = 32u << 10;
    std::string keys_file;  ///< empty: no keys, loopback only
    std::vector<std::string> cors_origins;
    std::vector<std::string> hosts;  ///< further names accepted in Host
    double drain_s = 30;
    double request_timeout_s = 30;              ///< a half-sent request is closed after that; at most 60
    double idle_timeout_s = 75;                 ///< keep-alive and WebSocket without traffic
    int ws_requests = 64;                       ///< in flight per WebSocket connection
    std::uint64_t unsent_bytes = 4ull << 20;    ///< per connection; a slower reader is cut off
    std::uint64_t reading_bytes = 64ull << 20;  ///< large bodies being read or waiting for it; beyond it 429
};

struct ModelSettings {
    std::filesystem::path path;
    std::string id;               ///< empty: the folder's or file's name
    std::string device = "auto";  ///< auto | cpu | cuda:N
    std::string dtype = "auto";   ///< auto | f32 | bf16 | int8 | int4
    std::string kernels = "auto";
    std::string activations = "f32";
    int max_context = 0;         ///< 0: the model's own
    std::uint64_t kv_bytes = 0;  ///< 0: chosen at start
    bool prefix_cache = true;    ///< keys and values outlive their request, for others that begin the same way
    int threads = 0;             ///< compute threads; 0 = all cores
};

struct ModuleSettings {
    std::vector<std::filesystem::path> roots;
    std::uint64_t device_bytes = 256ull << 20;
    std::uint64_t host_bytes = 512ull << 20;
    std::string slot_dtype = "bf16";  ///< bf16 | f32
    int max_rank = 64;
    std::string swap = "relaxed";           ///< relaxed | strict
    std::string trust_manifests = "roots";  ///< roots | always | never
    std::vector<std::string> pinned;
    int min_resident = 0;
    std::string idle_unload = "pressure";  ///< pressure | always | never
    std::string eviction = "cost";         ///< cost | lru
    int loaders = 2;
    double load_timeout_s = 60;
    bool allow_unverified_base = false;
    std::string restore_from = "file";  ///< file | clone
};

struct ColdSettings {
    ColdPolicy policy = ColdPolicy::upgrade;
    std::int64_t timeout_ms = 30000;
};

struct SchedulerSettings {
    int max_sequences = 64;
    int step_tokens = 512;          ///< rows per step: decode rows and prompt chunks together
    int queue = 512;                ///< requests admitted but not finished, beyond it 429
    std::string apply = "batched";  ///< batched | merged | auto
    std::int64_t drain_ms = 200;
    double slo_ttft_ms = 0;  ///< 0 = none
    double slo_itl_ms = 0;
};

struct TriggerSettings {
    double window_s = 60;
    double idle_s = 300;
    int hot_hits = 3;  ///< hits within the window that make a module hot
    double high_watermark = 0.9;
    double low_watermark = 0.7;
};

struct AuditSettings {
    double interval_s = 600;                  ///< one full pass per interval; 0 = off
    std::uint64_t bytes_per_s = 64ull << 20;  ///< upper bound of the hashing rate
};

struct RoutingSettings {
    std::filesystem::path file;  ///< routes.toml; empty: none
    std::string default_module;  ///< what an unmatched "auto" gets; empty: the base
};

struct LimitSettings {
    int n = 16;
    int prompts = 64;  ///< prompts in one completions body
    int stops = 16;
    int stop_bytes = 256;
    int modules = 8;
    int logprobs = 20;
    int logit_bias = 1024;
    int messages = 1024;
    int prompt_tokens = 0;  ///< 0: the context
    std::uint64_t package_bytes = 2ull << 30;
    int package_files = 64;
    int json_depth = 64;
    int module_names = 20000;
    std::uint64_t owner_bytes = 0;             ///< of one owner's modules in memory, host and resident; 0: none
    int owner_modules = 0;                     ///< of one owner in memory; 0: none
    std::uint64_t answer_bytes = 64ull << 20;  ///< of one unstreamed answer
};

struct LogSettings {
    LogLevel level = LogLevel::info;
    std::string format = "text";
};

struct Settings {
    ServerSettings server;
    ModelSettings model;
    ModuleSettings modules;
    ColdSettings cold;
    SchedulerSettings scheduler;
    TriggerSettings trigger;
    AuditSettings audit;
    RoutingSettings routing;
    LimitSettings limits;
    LogSettings log;
};

}  // namespace attune
