#include "cli/commands.hpp"

#include <iostream>
#include <string>

namespace attune::cli {

void add_not_yet(CLI::App& parent, const std::string& words, const std::string& description, Run& run) {
    const auto space = words.rfind(' ');
    const std::string name = space == std::string::npos ? words : words.substr(space + 1);
    CLI::App* command = parent.add_subcommand(name, description + " (not available yet)");
    command->allow_extras();
    command->callback([&run, words] {
        run = [words] {
            std::cerr << "attune " << words << ": not available yet\n";
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
