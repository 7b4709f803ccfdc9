#include "cli/options.hpp"

#include "cli/commands.hpp"
#include "config/settings_file.hpp"
#include "engine/files/model_path.hpp"

#include <iostream>
#include <system_error>

namespace attune::cli {

void SettingOptions::add_files(CLI::App& command) {
    command.add_option("--config", config, "Settings file (attune.toml)")->type_name("FILE");
    command.add_option("--set", assignments, "Change one setting, e.g. --set cold.policy=wait (repeatable)")
        ->type_name("SECTION.KEY=VALUE")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void SettingOptions::add_model(CLI::App& command) {
    command
        .add_option("--model", model,
                    "The base model: a folder (config.json, model.safetensors, tokenizer.json) or a .gguf file")
        ->type_name("PATH");
    command.add_option("--dtype", dtype, "How weights are stored: auto, f32, bf16, int8, int4")->type_name("DTYPE");
    command.add_option("--threads", threads, "Threads that compute (0: all cores)")->type_name("N");
}

Result<Settings> SettingOptions::read(const std::vector<std::string>& further) const {
    std::vector<std::string> all = assignments;
    if (!model.empty()) all.push_back("model.path=" + model);
    if (!dtype.empty()) all.push_back("model.dtype=" + dtype);
    if (threads >= 0) all.push_back("model.threads=" + std::to_string(threads));
    all.insert(all.end(), further.begin(), further.end());
    return read_settings(config, all);
}

Result<void> check_model_path(const std::filesystem::path& model) {
    const std::string shown = model.string();
    std::error_code failed;
    if (model.empty()) {
        return make_error(Errc::invalid_argument, "no model given: use --model PATH or [model] path");
    }
    if (!std::filesystem::exists(model, failed)) {
        return make_error(Errc::invalid_argument, "model " + shown + ": no such folder or file");
    }
    if (is_gguf_file(model)) return {};  // its reader says what is wrong with it
    if (!std::filesystem::exists(model / "config.json", failed)) {
        return make_error(Errc::invalid_argument, "model " + shown + ": has no config.json");
    }
    return {};
}

NamedPath name_of_module(const std::string& given) {
    NamedPath named;
    named.path = std::filesystem::path(given).lexically_normal();
    if (!named.path.has_filename()) named.path = named.path.parent_path();
    std::error_code failed;
    const bool is_folder = std::filesystem::is_directory(named.path, failed);
    named.name = (is_folder ? named.path.filename() : named.path.stem()).string();
    return named;
}

int report(const char* command, const Error& error) {
    std::cerr << "attune " << command << ": " << error.message << std::endl;
    return error.code == Errc::unsupported ? kNotYet : kFailed;
}

}  // namespace attune::cli
