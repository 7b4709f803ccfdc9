#pragma once

#include "attune/result.hpp"
#include "engine/module/path_pattern.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// `rank_pattern` or `alpha_pattern`: keys in the order of the file, the first that matches wins.
struct PatternTable {
    std::vector<std::pair<PathPattern, double>> rows;
    /// PEFT's rule: re.match(r"(.*\.)?(" + key + r")$", path).
    double lookup(std::string_view path, double otherwise) const;
};

/// A set of module paths as PEFT names them: one pattern for the whole path, or a list of names that match a whole path
/// or its end after a dot.
struct ModuleNames {
    std::optional<PathPattern> pattern;
    std::vector<std::string> names;
    bool all_linear = false;  ///< every projection, no embedding and no head
    bool contains(std::string_view path) const;
};

/// What a LoRA's adapter_config.json says, once everything is refused that this engine would have to ignore.
struct PeftConfig {
    int rank = 8;
    double alpha = 8;
    bool rslora = false;
    PatternTable rank_pattern;
    PatternTable alpha_pattern;
    ModuleNames targets;
    std::optional<ModuleNames> excluded;
    std::vector<std::string> modules_to_save;
    std::optional<std::vector<int>> layers;  ///< layers_to_transform
    std::vector<std::string> layers_patterns;
    // Refused together with the tensors they promise, so that the message can say which of the two is missing.
    bool dora = false;
    bool bias = false;
    std::string bias_word;  ///< the config's words for `bias`

    double scale(std::string_view path, int true_rank) const;
    bool targets_layer(std::string_view path) const;
    /// The config gives an adapter to the module at `path` (projections only).
    bool is_target(std::string_view path) const;
};

/// Errc::invalid_module naming the key and its value.
Result<PeftConfig> parse_peft_config(std::span<const std::byte> text);

}  // namespace attune
