#pragma once

#include "engine/module/manifest.hpp"
#include "engine/module/package_files.hpp"
#include "engine/module/peft_config.hpp"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// All that is known of a module before its weights are read: which files it is made of, and what its texts say.
struct Package {
    explicit Package(PackageFiles opened) : files(std::move(opened)) {}

    struct Peft {
        std::string config_name;   ///< "adapter/adapter_config.json"
        std::string weights_name;  ///< "adapter/adapter_model.safetensors"
        std::vector<std::byte> config_text;
        PeftConfig config;
    };

    PackageFiles files;
    std::optional<Manifest> manifest;
    std::optional<Peft> peft;
    std::string gguf_name;  ///< a LoRA or a control vector; empty: none
    std::string prefix;     ///< of the adapter's folder: "" or "adapter/"

    bool is_composition() const { return manifest && !manifest->members.empty(); }
};

/// Errc::not_found when nothing is there, Errc::invalid_module naming the file at fault.
Result<Package> open_package(const std::filesystem::path& path, const ModelShape& base, const ModuleLimits& limits);

}  // namespace attune
