#pragma once

#include "attune/ids.hpp"
#include "attune/result.hpp"
#include "engine/module/path_pattern.hpp"

#include <cstddef>
#include <cstdint>
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

/// `peft_type` (PEFT 0.21); Bone files of older versions are MiSS under another name.
enum class PeftType : std::uint8_t { lora, adalora, miss, vera, loha, lokr, oft, boft, ia3, prefix, prompt, p_tuning };

/// Kinds that hold one tensor of virtual tokens and touch no layer.
constexpr bool is_prompt_learning(PeftType type) { return type >= PeftType::prefix; }

/// MiSS's `init_weights`: the mode decides the mathematics, not only the start of the training.
enum class MissMode : std::uint8_t { standard, mini, bat };

/// What an adapter_config.json says, once everything is refused that this engine would have to ignore.
struct PeftConfig {
    PeftType type = PeftType::lora;
    int rank = 8;
    double alpha = 8;
    bool rslora = false;
    PatternTable rank_pattern;
    PatternTable alpha_pattern;
    std::optional<ModuleNames> targets;      ///< nothing: PEFT's choice for the base's family
    std::optional<ModuleNames> feedforward;  ///< IA3; nothing: PEFT's choice
    std::optional<ModuleNames> excluded;
    std::vector<std::string> modules_to_save;
    std::optional<std::vector<int>> layers;  ///< layers_to_transform
    std::vector<std::string> layers_patterns;
    bool dora = false;
    bool lora_bias = false;
    std::string bias = "none";        ///< none, all, or only those of adapted layers (lora_only, MiSS_only, ...)
    std::vector<TokenId> invocation;  ///< alora_invocation_tokens
    std::vector<TokenId> new_tokens;  ///< trainable_token_indices of the embedding, in the order of the file
    bool tied_saves = false;          ///< ensure_weight_tying
    MissMode miss = MissMode::standard;
    int mini_rank = 1;  ///< MiSS mini: columns that are repeated
    bool cayley_neumann = true;
    int cayley_terms = 5;
    bool block_share = false;  ///< OFT: one block for all
    int virtual_tokens = 0;
    int prompt_width = 0;   ///< token_dim; 0: not given
    int prompt_layers = 0;  ///< num_layers; 0: not given

    double scale(std::string_view path, int true_rank) const;
    bool targets_layer(std::string_view path) const;
    /// The config gives an adapter to the module at `path`. `model_type`: the base's, for PEFT's own choices.
    bool is_target(std::string_view path, std::string_view model_type) const;
    /// IA3 scales this module's input, not its output.
    bool is_feedforward(std::string_view path) const;
};

/// Errc::invalid_module naming the key and its value.
Result<PeftConfig> parse_peft_config(std::span<const std::byte> text);

}  // namespace attune
