#include "actors/house.hpp"
#include "attune/log.hpp"
#include "cli/commands.hpp"
#include "cli/open_base.hpp"
#include "cli/options.hpp"
#include "cli/stop_signals.hpp"
#include "config/routes_file.hpp"
#include "engine/route/route_table.hpp"
#include "net/server.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace attune::cli {
namespace {

using namespace std::chrono_literals;

struct ServeOptions {
    SettingOptions settings;
    std::vector<std::string> modules;
    std::string host;
    int port = -1;
    std::string cold;
    std::string apply;
    std::string keys_file;
};

Result<Settings> read(const ServeOptions& options) {
    std::vector<std::string> further;
    if (!options.host.empty()) further.push_back("server.host=" + options.host);
    if (options.port >= 0) further.push_back("server.port=" + std::to_string(options.port));
    if (!options.keys_file.empty()) further.push_back("server.keys_file=" + options.keys_file);
    if (!options.cold.empty()) further.push_back("cold.policy=" + options.cold);
    if (!options.apply.empty()) further.push_back("scheduler.apply=" + options.apply);
    auto settings = options.settings.read(further);
    if (!settings) return settings;
    // Like every flag, --modules replaces what the file says.
    if (!options.modules.empty()) settings->modules.roots.clear();
    for (const std::string& folder : options.modules) {
        settings->modules.roots.push_back(std::filesystem::absolute(folder).lexically_normal());
    }
    return settings;
}

/// Whatever can be told wrong before a model is read for a minute.
Result<void> check(const Settings& settings) {
    if (auto model = check_model_path(settings.model.path); !model) return model;
    std::error_code failed;
    for (const auto& root : settings.modules.roots) {
        if (!std::filesystem::exists(root, failed)) {
            return make_error(Errc::invalid_argument, "modules " + root.string() + ": no such folder");
        }
        if (!std::filesystem::is_directory(root, failed)) {
            return make_error(Errc::invalid_argument, "modules " + root.string() + ": not a folder");
        }
        std::filesystem::directory_iterator readable(root, failed);
        if (failed) {
            return make_error(Errc::invalid_argument, "modules " + root.string() + ": " + failed.message());
        }
    }
    const std::string& keys = settings.server.keys_file;
    if (!keys.empty() && !std::filesystem::is_regular_file(keys, failed)) {
        return make_error(Errc::invalid_argument, "keys file " + keys + ": no such file");
    }
    if (!settings.routing.file.empty()) {
        auto routes = read_routes(settings.routing.file);
        if (!routes) return routes.error();
        if (auto words = compile_routes(*routes); !words)
            return make_error(words.error().code,
                              settings.routing.file.filename().string() + ": " + words.error().message);
    }
    return {};
}

/// `file` may be empty: then rules come by request only.
RouteSource route_source(const std::filesystem::path& file) {
    RouteSource source;
    source.parse = [file](const std::string& json) { return parse_routes_json(json, file); };
    if (file.empty()) return source;
    source.name = file.filename().string();
    source.read = [file] { return read_routes(file); };
    source.stamp = [file](const RouteFile& last_read) { return routes_stamp(file, last_read); };
    return source;
}

/// Everything but the door.
Result<std::unique_ptr<House>> start_house(const Settings& settings) {
    try {
        auto base = open_base(settings, /*park_preempted=*/true);
        if (!base) return base.error();
        HouseParts parts;
        parts.engine = std::move(base->engine);
        parts.tokenizer = std::move(base->tokenizer);
        parts.chat_template = std::move(base->chat_template);
        parts.routes = route_source(settings.routing.file);
        return House::start(settings, std::move(parts));
    } catch (const std::exception& error) {
        // Foreseen faults come as Result; this is out of memory or a broken library.
        return make_error(Errc::internal, std::string("starting failed: ") + error.what());
    }
}

void print_listening(const Settings& settings, const Server& server) {
    const std::string& host = settings.server.host;
    const bool is_ipv6 = host.find(':') != std::string::npos;
    std::cout << "listening on http://" << (is_ipv6 ? "[" + host + "]" : host) << ":" << server.port() << std::endl;
}

enum class Drained { all, at_limit, interrupted };

/// Until the house has ended every answer and the door has written the last byte of each.
Drained drain(House& house, const Server& server, const StopSignals& signals, double limit_s) {
    const auto deadline =
        steady_now() + std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(limit_s));
    while (true) {
        // In slices, so that a second signal is seen.
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_now());
        const bool answered = house.drain(std::clamp(left, 0ms, 50ms));
        if (answered && server.connections() == 0) return Drained::all;
        if (left <= 0ms) return Drained::at_limit;
        const int signal = signals.wait_for(answered ? 5ms : 0ms);
        if (signal == SIGTERM || signal == SIGINT) return Drained::interrupted;
    }
}

int serve(const ServeOptions& options) {
    auto settings = read(options);
    if (!settings) return report("serve", settings.error());
    if (auto checked = check(*settings); !checked) return report("serve", checked.error());
    settings->model.id = base_id(*settings);
    set_log(settings->log.level, settings->log.format);

    const StopSignals signals;
    auto starting = std::async(std::launch::async, [&settings] { return start_house(*settings); });
    while (starting.wait_for(0ms) != std::future_status::ready) {
        const int signal = signals.wait_for(20ms);
        if (signal == SIGTERM || signal == SIGINT) {
            log(LogLevel::info, "stopped while starting");
            // Nothing has been served, and the read of a large model cannot be called back.
            std::_Exit(kDone);
        }
    }
    auto house = starting.get();
    if (!house) return report("serve", house.error());
    auto server = Server::listen(settings->server, settings->limits, (*house)->gateway());
    if (!server) return report("serve", server.error());
    print_listening(*settings, **server);

    int signal = signals.wait();
    while (signal == SIGHUP) {
        log(LogLevel::info, "SIGHUP: reading routes and module folders again");
        (*house)->reload();
        signal = signals.wait();
    }
    log(LogLevel::info, "draining: no new requests, answers in progress go on");
    (*server)->stop_accepting();
    const Drained drained = drain(**house, **server, signals, settings->server.drain_s);
    if (drained == Drained::interrupted) {
        log(LogLevel::warn, "second signal: stopping at once");
        (*server)->stop();
        // Not even a step that hangs may hold the process now.
        std::_Exit(kFailed);
    }
    if (drained == Drained::at_limit) log(LogLevel::warn, "server.drain_s is over; the remaining answers are cut off");
    // The door first: it holds a reference to the house's gateway.
    (*server)->stop();
    (*house)->stop();
    log(LogLevel::info, "stopped");
    return kDone;
}

}  // namespace

void add_serve(CLI::App& app, Run& run) {
    CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP and WebSocket");
    auto options = std::make_shared<ServeOptions>();
    options->settings.add_model(*command);
    command->add_option("--modules", options->modules, "Folder whose modules get names (repeatable)")
        ->type_name("DIR")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--host", options->host, "Address to listen on (default 127.0.0.1)")->type_name("HOST");
    command->add_option("--port", options->port, "Port to listen on (default 8000, 0: any free port)")
        ->type_name("PORT")
        ->check(CLI::Range(0, 65535));
    command
        ->add_option("--cold", options->cold,
                     "What a request gets while its module loads: wait, fallback, upgrade, revise")
        ->type_name("POLICY");
    command->add_option("--apply", options->apply, "How modules are put on the base: batched, merged or auto")
        ->type_name("MODE");
    command->add_option("--keys-file", options->keys_file, "TOML file with client and admin keys")->type_name("FILE");
    options->settings.add_files(*command);
    command->callback([&run, options] { run = [options] { return serve(*options); }; });
}

}  // namespace attune::cli
