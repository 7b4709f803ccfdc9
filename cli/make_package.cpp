// attune module pack, attune module convert: packages from files, without Python.

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "engine/module/convert_module.hpp"
#include "engine/module/pack_module.hpp"

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

namespace attune::cli {
namespace {

namespace fs = std::filesystem;

struct PackOptions {
    std::string source;
    std::string out;
};

int pack(const PackOptions& options) {
    fs::path source = fs::path(options.source).lexically_normal();
    if (!source.has_filename()) source = source.parent_path();
    const fs::path out = options.out.empty() ? fs::path(source.string() + ".attune") : fs::path(options.out);
    if (auto packed = pack_module(source, out); !packed) return report("module pack", packed.error());
    std::cout << out.string() << "\n";
    return kDone;
}

struct ConvertOptions {
    SettingOptions settings;
    std::string source;
    std::string out;
    std::string to = "package";
    PackageDescription description;
    std::string state;
    std::string checkpoint;
};

/// The base of --model, and the id that a state is bound to.
Result<std::optional<ModelShape>> read_base(const ConvertOptions& options) {
    const auto settings = options.settings.read();
    if (!settings) return settings.error();
    if (!options.state.empty() && (settings->model.path.empty() || options.checkpoint.empty()))
        return make_error(Errc::invalid_argument,
                          "a state belongs to one base: give --model, and --checkpoint as GET /v1/audit tells it");
    if (settings->model.path.empty()) return std::optional<ModelShape>();
    if (auto checked = check_model_path(settings->model.path); !checked) return checked.error();
    auto base = read_model_shape(settings->model.path);
    if (!base) return base.error();
    base->checkpoint = options.checkpoint;
    return std::optional(*std::move(base));
}

Result<void> convert_to_package(const ConvertOptions& options) {
    const auto base = read_base(options);
    if (!base) return base.error();
    PackageDescription description = options.description;
    description.state = options.state;
    fs::path out = fs::path(options.out).lexically_normal();
    if (!out.has_filename()) out = out.parent_path();
    if (description.name.empty()) description.name = out.stem().string();
    const ModelShape* shape = *base ? &**base : nullptr;
    if (out.extension() != ".attune") return make_package(options.source, description, shape, out);
    std::error_code ignored;
    const fs::path folder = out.string() + ".folder";
    if (auto made = make_package(options.source, description, shape, folder); !made) return made;
    auto packed = pack_module(folder, out);
    fs::remove_all(folder, ignored);
    return packed;
}

int convert(const ConvertOptions& options) {
    const auto done = options.to == "peft" ? extract_peft(options.source, options.out) : convert_to_package(options);
    if (!done) return report("module convert", done.error());
    std::cout << options.out << "\n";
    return kDone;
}

void add_pack(CLI::App& command, Run& run) {
    CLI::App* added = command.add_subcommand("pack", "Put a module's folder into one file");
    auto options = std::make_shared<PackOptions>();
    added->add_option("folder", options->source, "Package or PEFT folder")->required()->type_name("DIR");
    added->add_option("out", options->out, "The file to write (default: FOLDER.attune)")->type_name("FILE");
    added->callback([&run, options] { run = [options] { return pack(*options); }; });
}

void add_convert(CLI::App& command, Run& run) {
    CLI::App* added = command.add_subcommand(
        "convert", "Make a package of a PEFT folder, a GGUF LoRA or a state's file; or a PEFT folder of a package");
    auto options = std::make_shared<ConvertOptions>();
    PackageDescription& description = options->description;
    added->add_option("source", options->source, "PEFT folder, .gguf LoRA or package; empty (\"\") for a state alone")
        ->required()
        ->type_name("PATH");
    added->add_option("out", options->out, "Folder or .attune file to make")->required()->type_name("PATH");
    added->add_option("--to", options->to, "package (default) or peft")->check(CLI::IsMember({"package", "peft"}));
    added->add_option("--model", options->settings.model, "The base, whose shape is written down")->type_name("PATH");
    added->add_option("--checkpoint", options->checkpoint, "The base's id as GET /v1/audit tells it; a state needs it")
        ->type_name("ID");
    added->add_option("--name", description.name, "Default: the name of OUT")->type_name("NAME");
    added->add_option("--module-version", description.version)->type_name("TEXT");
    added->add_option("--description", description.description)->type_name("TEXT");
    added->add_option("--license", description.license)->type_name("TEXT");
    added->add_option("--order", description.order, "Place of its state among others")->type_name("N");
    added->add_option("--requires", description.needs, "A module to be put on first, NAME or NAME@VERSION (repeatable)")
        ->type_name("NAME")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    added->add_option("--adapter-scale", description.adapter_scale, "Factor on the adapter (default 1)")
        ->type_name("X");
    added->add_option("--state", options->state, "A state's .safetensors file")->type_name("FILE");
    added->add_option("--state-kind", description.state_kind, "vector, linear or bottleneck");
    added->add_option("--state-layers", description.state_layers, "\"12-19\", \"middle:8\" or \"3,5,7\"");
    added->add_option("--state-scale", description.state_scales, "One number, or one for each layer (default 0.1)")
        ->delimiter(',')
        ->type_name("X");
    added->add_option("--state-activation", description.state_activation, "identity, tanh, relu, silu or gelu");
    options->settings.add_files(*added);
    added->callback([&run, options] { run = [options] { return convert(*options); }; });
}

}  // namespace

void add_make_package(CLI::App& command, Run& run) {
    add_pack(command, run);
    add_convert(command, run);
}

}  // namespace attune::cli
