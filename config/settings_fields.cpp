#include "config/settings_fields.hpp"

#include "config/setting_kinds.hpp"

#include <algorithm>
#include <string_view>

namespace attune {
namespace {

using namespace setting_kinds;

constexpr double kDay_s = 86400;

bool is_not_empty(std::string_view text) { return !text.empty(); }
bool is_origin(std::string_view text) {
    const auto scheme = text.find("://");
    return scheme != std::string_view::npos && scheme > 0 && scheme + 3 < text.size() &&
           text.find('/', scheme + 3) == std::string_view::npos;
}
/// The rest of the rule (letters, NFC) is checked where names are made; here only what would break messages and URLs.
bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= 512 && text != "auto" && text.find('/') == std::string_view::npos;
}
bool is_name_or_empty(std::string_view text) { return text.empty() || is_name(text); }
bool is_device(std::string_view text) {
    if (text == "auto" || text == "cpu") return true;
    if (!text.starts_with("cuda:")) return false;
    text.remove_prefix(5);
    return !text.empty() && text.size() <= 3 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void add_server(std::vector<SettingField>& all) {
    using S = ServerSettings;
    const auto server = [](auto member) { return At{&Settings::server, member}; };
    all.push_back(text("server", "host", server(&S::host), "an address or a host name", is_not_empty));
    all.push_back(integer("server", "port", server(&S::port), 0, 65535, " (0 = any free port)"));
    all.push_back(integer("server", "threads", server(&S::threads), 1, 256));
    all.push_back(integer("server", "max_connections", server(&S::max_connections), 1, 100000));
    all.push_back(size("server", "max_body_bytes", server(&S::max_body_bytes), kKiB, 2 * kGiB));
    all.push_back(size("server", "max_header_bytes", server(&S::max_header_bytes), kKiB, kMiB));
    all.push_back(path("server", "keys_file", server(&S::keys_file)));
    all.push_back(list("server", "cors_origins", server(&S::cors_origins),
                       "a list of origins like \"https://chat.example.org\"", is_origin));
    all.push_back(list("server", "hosts", server(&S::hosts), "a list of host names", is_not_empty));
    all.push_back(number("server", "drain_s", server(&S::drain_s), 0, kDay_s));
    all.push_back(number("server", "request_timeout_s", server(&S::request_timeout_s), 0.1, 60));
    all.push_back(number("server", "idle_timeout_s", server(&S::idle_timeout_s), 1, kDay_s));
    all.push_back(integer("server", "ws_requests", server(&S::ws_requests), 1, 4096));
    all.push_back(size("server", "unsent_bytes", server(&S::unsent_bytes), 4 * kKiB, kGiB));
    all.push_back(size("server", "reading_bytes", server(&S::reading_bytes), 64 * kKiB, 64 * kGiB));
}

void add_model(std::vector<SettingField>& all) {
    using S = ModelSettings;
    const auto model = [](auto member) { return At{&Settings::model, member}; };
    all.push_back(path("model", "path", model(&S::path)));
    all.push_back(text("model", "id", model(&S::id), "a name without \"/\", not \"auto\"", is_name_or_empty));
    all.push_back(text("model", "device", model(&S::device), "\"auto\", \"cpu\", \"cuda:N\"", is_device));
    all.push_back(choice("model", "dtype", model(&S::dtype), {"auto", "f32", "bf16", "int8", "int4"}));
    all.push_back(
        choice("model", "kernels", model(&S::kernels), {"auto", "torch", "baseline", "x86-64-v3", "x86-64-v4"}));
    all.push_back(choice("model", "activations", model(&S::activations), {"f32", "bf16"}));
    all.push_back(integer("model", "max_context", model(&S::max_context), 0, 1 << 24, " (0 = the model's own)"));
    all.push_back(size("model", "kv_bytes", model(&S::kv_bytes), kMiB, 64 * kTiB, /*zero_too=*/true));
    all.push_back(boolean("model", "prefix_cache", model(&S::prefix_cache)));
    all.push_back(integer("model", "threads", model(&S::threads), 0, 1024, " (0 = all cores)"));
}

void add_modules(std::vector<SettingField>& all) {
    using S = ModuleSettings;
    const auto modules = [](auto member) { return At{&Settings::modules, member}; };
    all.push_back(list("modules", "roots", modules(&S::roots), "a list of folders, relative to the settings file",
                       is_not_empty, /*paths=*/true));
    all.push_back(size("modules", "device_bytes", modules(&S::device_bytes), kMiB, 64 * kTiB));
    all.push_back(size("modules", "host_bytes", modules(&S::host_bytes), kMiB, 64 * kTiB));
    all.push_back(choice("modules", "slot_dtype", modules(&S::slot_dtype), {"bf16", "f32"}));
    all.push_back(integer("modules", "max_rank", modules(&S::max_rank), 1, 4096));
    all.push_back(choice("modules", "swap", modules(&S::swap), {"relaxed", "strict"}));
    all.push_back(choice("modules", "trust_manifests", modules(&S::trust_manifests), {"roots", "always", "never"}));
    all.push_back(list("modules", "pinned", modules(&S::pinned), "a list of module names", is_name));
    all.push_back(integer("modules", "min_resident", modules(&S::min_resident), 0, 100000));
    all.push_back(choice("modules", "idle_unload", modules(&S::idle_unload), {"pressure", "always", "never"}));
    all.push_back(choice("modules", "eviction", modules(&S::eviction), {"cost", "lru"}));
    all.push_back(integer("modules", "loaders", modules(&S::loaders), 1, 64));
    all.push_back(number("modules", "load_timeout_s", modules(&S::load_timeout_s), 0.1, kDay_s));
    all.push_back(boolean("modules", "allow_unverified_base", modules(&S::allow_unverified_base)));
    all.push_back(choice("modules", "restore_from", modules(&S::restore_from), {"file", "clone"}));
}

void add_work(std::vector<SettingField>& all) {
    const auto cold = [](auto member) { return At{&Settings::cold, member}; };
    all.push_back(enumerated("cold", "policy", cold(&ColdSettings::policy),
                             {{"wait", ColdPolicy::wait},
                              {"fallback", ColdPolicy::fallback},
                              {"upgrade", ColdPolicy::upgrade},
                              {"revise", ColdPolicy::revise}}));
    all.push_back(integer("cold", "timeout_ms", cold(&ColdSettings::timeout_ms), 1, 86400000));

    using S = SchedulerSettings;
    const auto scheduler = [](auto member) { return At{&Settings::scheduler, member}; };
    all.push_back(integer("scheduler", "max_sequences", scheduler(&S::max_sequences), 1, 65536));
    all.push_back(integer("scheduler", "step_tokens", scheduler(&S::step_tokens), 1, 1 << 20));
    all.push_back(integer("scheduler", "queue", scheduler(&S::queue), 1, 1000000));
    all.push_back(choice("scheduler", "apply", scheduler(&S::apply), {"batched", "merged", "auto"}));
    all.push_back(integer("scheduler", "drain_ms", scheduler(&S::drain_ms), 0, 86400000));
    all.push_back(number("scheduler", "slo_ttft_ms", scheduler(&S::slo_ttft_ms), 0, 1e9, " (0 = none)"));
    all.push_back(number("scheduler", "slo_itl_ms", scheduler(&S::slo_itl_ms), 0, 1e9, " (0 = none)"));
}

void add_care(std::vector<SettingField>& all) {
    using T = TriggerSettings;
    const auto trigger = [](auto member) { return At{&Settings::trigger, member}; };
    all.push_back(number("trigger", "window_s", trigger(&T::window_s), 1, kDay_s));
    all.push_back(number("trigger", "idle_s", trigger(&T::idle_s), 0.1, 365 * kDay_s));
    all.push_back(integer("trigger", "hot_hits", trigger(&T::hot_hits), 1, 1000000));
    all.push_back(number("trigger", "high_watermark", trigger(&T::high_watermark), 0, 1));
    all.push_back(number("trigger", "low_watermark", trigger(&T::low_watermark), 0, 1));

    const auto audit = [](auto member) { return At{&Settings::audit, member}; };
    all.push_back(number("audit", "interval_s", audit(&AuditSettings::interval_s), 0, 365 * kDay_s, " (0 = off)"));
    all.push_back(size("audit", "bytes_per_s", audit(&AuditSettings::bytes_per_s), 64 * kKiB, kTiB));

    all.push_back(path("routing", "file", At{&Settings::routing, &RoutingSettings::file}));
    all.push_back(text("routing", "default", At{&Settings::routing, &RoutingSettings::default_module},
                       "a module's name, or \"\" for the base", is_name_or_empty));

    all.push_back(enumerated("log", "level", At{&Settings::log, &LogSettings::level},
                             {{"trace", LogLevel::trace},
                              {"debug", LogLevel::debug},
                              {"info", LogLevel::info},
                              {"warn", LogLevel::warn},
                              {"error", LogLevel::error},
                              {"off", LogLevel::off}}));
    all.push_back(choice("log", "format", At{&Settings::log, &LogSettings::format}, {"text", "json"}));
}

void add_limits(std::vector<SettingField>& all) {
    using S = LimitSettings;
    const auto limits = [](auto member) { return At{&Settings::limits, member}; };
    all.push_back(integer("limits", "n", limits(&S::n), 1, 1024));
    all.push_back(integer("limits", "prompts", limits(&S::prompts), 1, 65536));
    all.push_back(integer("limits", "stops", limits(&S::stops), 0, 4096));
    all.push_back(integer("limits", "stop_bytes", limits(&S::stop_bytes), 1, 65536));
    all.push_back(integer("limits", "modules", limits(&S::modules), 1, 64));
    all.push_back(integer("limits", "logprobs", limits(&S::logprobs), 0, 1000));
    all.push_back(integer("limits", "logit_bias", limits(&S::logit_bias), 0, 1000000));
    all.push_back(integer("limits", "messages", limits(&S::messages), 1, 1000000));
    all.push_back(integer("limits", "prompt_tokens", limits(&S::prompt_tokens), 0, 1 << 24, " (0 = the context)"));
    all.push_back(size("limits", "package_bytes", limits(&S::package_bytes), kKiB, kTiB));
    all.push_back(integer("limits", "package_files", limits(&S::package_files), 1, 100000));
    all.push_back(integer("limits", "json_depth", limits(&S::json_depth), 4, 1000));
    all.push_back(integer("limits", "module_names", limits(&S::module_names), 1, 10000000));
    all.push_back(size("limits", "owner_bytes", limits(&S::owner_bytes), kKiB, 64 * kTiB, /*zero_too=*/true));
    all.push_back(integer("limits", "owner_modules", limits(&S::owner_modules), 0, 10000000, " (0 = no limit)"));
    all.push_back(size("limits", "answer_bytes", limits(&S::answer_bytes), 4 * kKiB, 4 * kGiB));
}

std::vector<SettingField> make_fields() {
    std::vector<SettingField> all;
    add_server(all);
    add_model(all);
    add_modules(all);
    add_work(all);
    add_care(all);
    add_limits(all);
    return all;
}

}  // namespace

const std::vector<SettingField>& setting_fields() {
    static const std::vector<SettingField> fields = make_fields();
    return fields;
}

}  // namespace attune
