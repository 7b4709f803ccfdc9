#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "config/routes_file.hpp"
#include "config/settings_file.hpp"
#include "engine/route/route_table.hpp"

#include <iostream>
#include <memory>

namespace attune::cli {
namespace {

struct CheckOptions {
    SettingOptions settings;
    std::string file;
    bool show = false;
};

int check(const CheckOptions& options) {
    SettingOptions given = options.settings;
    if (given.config.empty()) given.config = options.file;
    const auto settings = given.read();
    if (!settings) return report("config check", settings.error());
    std::size_t rules = 0;
    if (!settings->routing.file.empty()) {
        const auto routes = read_routes(settings->routing.file);
        if (!routes) return report("config check", routes.error());
        if (auto words = compile_routes(*routes); !words)
            return report("config check", make_error(words.error().code, settings->routing.file.filename().string() +
                                                                             ": " + words.error().message));
        rules = routes->rules.size();
    }
    if (options.show) {
        std::cout << show_settings(*settings);
        return kDone;
    }
    std::cout << (given.config.empty() ? "defaults" : given.config) << ": ok";
    if (!settings->routing.file.empty()) {
        std::cout << "; " << settings->routing.file.string() << ": ok, " << rules << (rules == 1 ? " rule" : " rules");
    }
    std::cout << "\n";
    return kDone;
}

}  // namespace

void add_config(CLI::App& app, Run& run) {
    CLI::App* command = app.add_subcommand("config", "Settings files");
    command->require_subcommand(1);
    CLI::App* checked = command->add_subcommand("check", "Check a settings file and the routes it names");
    auto options = std::make_shared<CheckOptions>();
    options->settings.add_files(*checked);
    checked->add_option("file", options->file, "Settings file, the same as --config")->type_name("FILE");
    checked->add_flag("--show", options->show, "Print every setting with its value as a settings file");
    checked->callback([&run, options] { run = [options] { return check(*options); }; });
}

}  // namespace attune::cli
