#pragma once

#include "attune/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// What PEFT compares before it puts one adapter's weights into the place of another's (peft.utils.hotswap).
struct SwapFacts {
    std::string peft_type;  ///< as in the config: LORA, IA3, ...; the kind in capitals for what is no PEFT folder
    /// The keys of the config that must agree, in PEFT's order, and their values as Python writes them.
    std::vector<std::pair<std::string, std::string>> config;
    std::vector<std::string> keys;  ///< of the tensors, ascending

    std::uint64_t bytes() const;
};

/// Of a PEFT folder; `config_text` was parsed before. `keys` in any order.
SwapFacts swap_facts(std::span<const std::byte> config_text, std::vector<std::string> keys);

/// The refusals of modules.swap = strict, in PEFT's words: types and configs that differ, tensors that there is no
/// place for. Everything else is a swap. `place` are the facts of the first module under the name: one with fewer
/// tensors leaves the places of the others empty, but there. Errc::invalid_module.
Result<void> check_hotswap(const SwapFacts& place, const SwapFacts& next);
/// The same for a name that nobody has: every tensor is one too many.
Error unknown_hotswap(const SwapFacts& next);
/// For one whose weights are merged into the base.
Error merged_hotswap(std::string_view name);

}  // namespace attune
