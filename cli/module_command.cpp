#include "actors/module_template.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "engine/model/base_values.hpp"
#include "engine/module/module_loader.hpp"
#include "engine/module/module_overlaps.hpp"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace attune::cli {
namespace {

constexpr int kTogether = 64;  ///< modules that are looked at together

struct ModuleOptions {
    SettingOptions settings;
    std::vector<std::string> paths;
};

/// The module's folder or file and the base it is held against.
struct Subject {
    NamedPath module;
    ModelShape base;
    ModuleLimits limits;
    std::filesystem::path model;
    std::string dtype;  ///< what the base is served as
};

Result<Subject> open_subject(const ModuleOptions& options, const std::string& path) {
    const auto settings = options.settings.read();
    if (!settings) return settings.error();
    Subject subject;
    subject.module = name_of_module(path);
    subject.limits = module_limits(*settings);
    std::error_code failed;
    if (!std::filesystem::exists(subject.module.path, failed)) {
        return make_error(Errc::not_found, path + ": no such module");
    }
    if (auto checked = check_model_path(settings->model.path); !checked) return checked.error();
    auto base = read_model_shape(settings->model.path);
    if (!base) return base.error();
    subject.base = std::move(*base);
    subject.model = settings->model.path;
    subject.dtype = settings->model.dtype;
    // Tokenizers take a while to read, and few modules bring a template or more tokens: read for the first that does.
    const auto tokenizer =
        [model = settings->model.path,
         kept = std::make_shared<std::shared_ptr<const Tokenizer>>()]() -> Result<std::shared_ptr<const Tokenizer>> {
        if (!*kept) {
            auto opened = Tokenizer::open(model);
            if (!opened) return opened.error();
            *kept = *std::move(opened);
        }
        return *kept;
    };
    subject.limits.make_template = [tokenizer](const TemplateSource& source,
                                               const Tokenizer* own) -> Result<std::shared_ptr<const ChatTemplate>> {
        const auto base_tokenizer = tokenizer();
        if (!base_tokenizer) return base_tokenizer.error();
        return template_maker(*base_tokenizer)(source, own);
    };
    subject.limits.make_tokenizer =
        [tokenizer](const AddedTokenFacts& added) -> Result<std::shared_ptr<const Tokenizer>> {
        const auto base_tokenizer = tokenizer();
        if (!base_tokenizer) return base_tokenizer.error();
        return tokenizer_maker(*base_tokenizer)(added);
    };
    return subject;
}

std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
    return out;
}

/// One line "label  value"; nothing for what a module does not say.
void print(std::string label, const std::string& value) {
    if (value.empty()) return;
    label.resize(14, ' ');
    std::cout << label << value << "\n";
}

int inspect(const ModuleOptions& options) {
    const auto subject = open_subject(options, options.paths.front());
    if (!subject) return report("module inspect", subject.error());
    const auto header = inspect_module(subject->module.path, subject->base, subject->limits);
    if (!header) return report("module inspect", header.error());
    print("name", header->name.empty() ? subject->module.name : header->name);
    print("version", header->version);
    print("description", header->description);
    print("license", header->license);
    print("kind", header->kind);
    print("base match", header->base_match);
    print("largest rank", std::to_string(header->max_rank));
    print("targets", joined(header->targets));
    print("file bytes", std::to_string(header->file_bytes));
    print("parsed bytes", std::to_string(header->parsed_bytes) + " at most");
    if (header->own_template) print("chat template", "its own");
    print("owner", header->owner);
    if (header->pin) print("pinned", "yes");
    return kDone;
}

/// Reads one module whole and tells what it found.
Result<ModulePtr> verify_one(const ModuleOptions& options, const std::string& path) {
    auto subject = open_subject(options, path);
    if (!subject) return subject.error();
    auto values = open_base_values(subject->model, subject->dtype);
    if (!values) return values.error();
    subject->limits.base_values = *std::move(values);
    const auto begin = std::chrono::steady_clock::now();
    auto module = load_module(subject->module.name, subject->module.path, subject->base, subject->limits);
    if (!module) return module;
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
    const Module& loaded = **module;
    print("name", loaded.id.name);
    print("generation", loaded.id.generation);
    print("kind", loaded.kind);
    print("base match", loaded.base_match);
    if (loaded.unverified) print("unverified", "nothing vouches that it was made for this base");
    print("largest rank", std::to_string(loaded.max_rank));
    print("pairs", std::to_string(loaded.pairs.size()));
    print("parsed bytes", std::to_string(loaded.host_bytes));
    if (loaded.text) print("chat template", "its own");
    std::cout << "ok, read and checked in " << static_cast<long>(spent.count() + 0.5) << " ms\n";
    return module;
}

int verify(const ModuleOptions& options) {
    std::vector<ModulePtr> loaded;
    for (const std::string& path : options.paths) {
        auto module = verify_one(options, path);
        if (!module) return report("module verify", module.error());
        loaded.push_back(*std::move(module));
    }
    if (loaded.size() < 2) return kDone;
    std::vector<NamedModule> together;
    for (const ModulePtr& module : loaded) together.push_back({module->id.name, module.get()});
    const auto overlaps = module_overlaps(together);
    for (const ModuleOverlap& overlap : overlaps) print("overlap", overlap_text(overlap));
    if (overlaps.empty()) std::cout << "no overlaps: no two of them touch the same thing\n";
    return kDone;
}

void add_check(CLI::App& command, const char* name, const char* description, int (*check)(const ModuleOptions&),
               int most, Run& run) {
    CLI::App* added = command.add_subcommand(name, description);
    auto options = std::make_shared<ModuleOptions>();
    added->add_option("path", options->paths, "Module folder or file")
        ->required()
        ->type_name("PATH")
        ->expected(1, most);
    added->add_option("--model", options->settings.model, "The base model: a folder or a .gguf file")
        ->type_name("PATH");
    options->settings.add_files(*added);
    added->callback([&run, options, check] { run = [options, check] { return check(*options); }; });
}

}  // namespace

void add_module(CLI::App& app, Run& run) {
    CLI::App* command = app.add_subcommand("module", "Module files");
    command->require_subcommand(1);
    add_check(*command, "inspect", "Tell what a module touches and needs, from its headers", inspect, 1, run);
    add_check(*command, "verify", "Read modules whole, check them against a base model, and tell where they overlap",
              verify, kTogether, run);
    add_make_package(*command, run);
}

}  // namespace attune::cli
