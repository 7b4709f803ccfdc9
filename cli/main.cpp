#include "cli/commands.hpp"

#include <csignal>
#include <exception>
#include <iostream>

#ifndef ATTUNE_VERSION
#error "the build gives ATTUNE_VERSION"
#endif

int main(int argc, char** argv) {
    using namespace attune::cli;
    // A client that closes its socket, or `attune generate | head`, must not end the process.
    std::signal(SIGPIPE, SIG_IGN);

    CLI::App app{"attune: one base model, small modules put on it per request"};
    app.name("attune");
    app.set_version_flag("--version", "attune " ATTUNE_VERSION);
    app.require_subcommand(0, 1);
    Run run;
    add_serve(app, run);
    add_generate(app, run);
    add_module(app, run);
    add_config(app, run);
    add_train_router(app, run);
    add_later(app, run);

    try {
        app.parse(argc, argv);
        if (!run) {
            std::cout << app.help();
            return kFailed;
        }
        return run();
    } catch (const CLI::ParseError& error) {
        // Help and version arrive as "errors" with status 0.
        return app.exit(error) == 0 ? kDone : kFailed;
    } catch (const std::exception& error) {
        std::cerr << "attune: " << error.what() << "\n";
        return kFailed;
    }
}
