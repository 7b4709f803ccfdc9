#include "cli/commands.hpp"

#include <iostream>
#include <string>

namespace attune::cli {

void add_not_yet(CLI::App& parent, const char* name, const char* description, Run& run) {
    CLI::App* command = parent.add_subcommand(name, std::string(description) + " (not available yet)");
    command->allow_extras();
    command->callback([&run, name] {
        run = [name] {
            std::cerr << "attune " << name << ": not available yet\n";
            return kNotYet;
        };
    });
}

void add_later(CLI::App& app, Run& run) {
    add_not_yet(app, "train", "Train a module on the base model", run);
    add_not_yet(app, "bench", "Measure a running server", run);
    add_not_yet(app, "tune", "Choose settings for this machine", run);
}

}  // namespace attune::cli
