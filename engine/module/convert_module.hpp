#pragma once

#include "attune/result.hpp"
#include "engine/model/model_shape.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace attune {

/// What a new package says of itself; see DESIGN, module package.
struct PackageDescription {
    std::string name;
    std::string version;
    std::string description;
    std::string license;
    int order = 0;
    std::vector<std::string> needs;  ///< the manifest's `requires`
    double adapter_scale = 1.0;

    std::filesystem::path state;  ///< a state's safetensors file; empty: no state
    std::string state_kind;
    std::string state_layers;  ///< "12-19", "middle:8" or "3,5,7"
    std::vector<double> state_scales;
    std::string state_activation;
};

/// Makes the package folder `out` from an adapter (a PEFT folder or a GGUF LoRA; empty: none) and what `description`
/// adds to it. `base` gives the manifest's base fields; its checkpoint, when known, too. `out` appears whole or not at
/// all, and must not exist. Only files that the loader reads are taken along. Errc::invalid_argument says what is
/// wrong.
Result<void> make_package(const std::filesystem::path& adapter, const PackageDescription& description,
                          const ModelShape* base, const std::filesystem::path& out);

/// Copies a package's adapter part as the PEFT folder it was. Errc::invalid_argument when it has none, or one in GGUF,
/// or has a state, which a PEFT folder cannot hold.
Result<void> extract_peft(const std::filesystem::path& package, const std::filesystem::path& out);

}  // namespace attune
