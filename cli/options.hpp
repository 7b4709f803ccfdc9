#pragma once

#include "attune/result.hpp"
#include "attune/settings.hpp"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace attune::cli {

/// The flags that several commands share. They change settings in this order: defaults, --config, --set, own flags.
struct SettingOptions {
    std::string config;
    std::vector<std::string> assignments;  ///< --set section.key=value
    std::string model;
    std::string dtype;
    int threads = -1;

    void add_files(CLI::App& command);  ///< --config and --set
    void add_model(CLI::App& command);  ///< --model, --dtype and --threads

    /// The settings with all of these applied; `further` are a command's own flags as "section.key=value".
    Result<Settings> read(const std::vector<std::string>& further = {}) const;
};

/// The model path (a folder or a GGUF file) exists and looks like one. Paths are shown: this is the operator's
/// terminal.
Result<void> check_model_path(const std::filesystem::path& model);

/// "DIR/legal/" and "DIR/legal.gguf" are the module "legal".
struct NamedPath {
    std::filesystem::path path;
    std::string name;
};
NamedPath name_of_module(const std::string& given);

/// One line on stderr; the exit status that fits the error.
int report(const char* command, const Error& error);

}  // namespace attune::cli
